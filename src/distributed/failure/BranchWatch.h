#pragma once

#include "distributed/failure/LineSocket.h"
#include "distributed/failure/WatchThread.h"

namespace adtrain {

/// The watch of a rank that is not rank 0: says what it does and hears what rank 0 has decided. Where rank 0
/// falls silent or is gone, it finds so by itself, and leaves word of it for the case that rank 0 is woken.
class BranchWatch final : public WatchThread {
 public:
  BranchWatch(RankIdentity me, RankIdentity root, const DistributedOptions& options, Tell tell,
              LineSocket connection);
  ~BranchWatch() override;

 private:
  void listen(const std::vector<WatchMessage>& messages) override;
  void judge() override;
  void forgive_silence() override { heard_at_ = now(); }
  std::vector<int> descriptors() const override;

  RankIdentity root_;
  Doing root_doing_;
  LineSocket connection_;
  double heard_at_ = 0;  ///< by now()
  bool root_left_ = false;
  bool asked_ = false;
};

}  // namespace adtrain
