#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/CheckpointStore.h"

namespace adtrain {

/// One element of a tensor that both have.
struct ElementDifference {
  std::string tensor;          ///< with its file: "model/blocks.0.norm.weight"
  std::vector<int64_t> index;  ///< one number for each dimension
  std::string first, second;   ///< its values, with digits that tell any two of its type apart
  double by = 0;               ///< the absolute difference; 0 for 0 and −0, NaN where a value is

  /// "model/blocks.0.norm.weight[3]: 0.5 and 0.25, by 0.25".
  std::string text() const;
};

/// In what tensors of two, A and B, differ.
struct TensorDifference {
  int64_t tensors = 0;    ///< that both have, of one shape and type
  int64_t different = 0;  ///< those of them that differ in a bit
  std::optional<ElementDifference> first;
  std::optional<ElementDifference> largest;  ///< none where no values differ, only bits
  std::vector<std::string> unlike;           ///< a sentence for each tensor that one lacks, or has otherwise

  bool none() const { return different == 0 && unlike.empty(); }
  /// Adds what those of one file differ in, contiguous on the CPU, in A's order. `file`: the file or folder,
  /// which is put before tensors' names.
  void compare(const std::string& file, const std::vector<NamedTensor>& first_tensors,
               const std::vector<NamedTensor>& second_tensors);
};

/// In what two checkpoints differ. Parameters come before the optimizer's moments.
struct CheckpointDifference : TensorDifference {
  static CheckpointDifference between(const Snapshot& first, const Snapshot& second);
};

}  // namespace adtrain
