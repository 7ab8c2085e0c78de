#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/SharedBytes.h"
#include "base/SharedMemory.h"
#include "collectives/Communicator.h"

namespace adtrain {

/// Memory of which the ranks of a machine have one copy together. Where they cannot share it, each has its
/// own. For one thread.
class NodeMemory {
 public:
  /// Collective. Only ranks with the same `content` share, which says what the memory is to hold.
  NodeMemory(Communicator& communicator, const std::string& content);

  /// Memory for `bytes` bytes, which is the same number on all ranks. Collective. Throws std::bad_alloc where
  /// not even this rank's own can be had.
  SharedBytes allocate(size_t bytes);
  /// Of the ranks that would share with this one, itself among them.
  size_t sharers() const { return neighbours_.size(); }
  /// Why ranks of one machine have a copy each since the last `allocate`: of the first machine where that is
  /// so. "" where none has. The same on all ranks.
  const std::string& why_not_shared() const { return why_not_; }

 private:
  bool agree(const std::string& failure);

  Communicator& communicator_;
  std::vector<size_t> neighbours_;  ///< ranks, in their order
  std::string why_not_;
};

}  // namespace adtrain
