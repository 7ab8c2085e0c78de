#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/ScalarType.h>

#include "kernels/plan/KernelPlan.h"
#include "memory/MemorySplit.h"
#include "model/FrozenParameters.h"
#include "run/RunConfig.h"

namespace adtrain {

/// What training takes of each GPU's memory, by arithmetic alone: no GPU and no histories are necessary.
/// docs/benchmarks.md compares it with what was measured.
class MemoryEstimate {
 public:
  /// For this many ranks, one a GPU. The kernels are those of `gpu`; the precision is the configuration's.
  /// Throws as freeze() does.
  MemoryEstimate(const RunConfig& config, const kernels::DeviceTraits& gpu, int64_t world_size);

  /// With a micro-batch of this many sequences on each GPU, while the step is captured (or runs eagerly, by
  /// the configuration).
  MemorySplit split(int64_t micro_batch) const;
  /// Of the activations: the held-out loss, whose rows are more than the micro-batch's and find no freed
  /// memory of their size. 0 where there is none, or has fewer.
  int64_t held_out_bytes(int64_t micro_batch) const;
  /// The largest micro-batch whose split takes at most `bytes`; 0 where not even one sequence fits.
  int64_t largest_batch(int64_t bytes) const;
  /// The configuration's micro-batch; 1 where it is to be found by trials. Nothing where the global batch
  /// does not divide over so many ranks.
  std::optional<int64_t> configured_batch() const;

  int64_t parameter_count() const { return parameter_count_; }
  /// Those that are not frozen.
  int64_t trained_count() const { return trained_count_; }
  const kernels::KernelPlan& plan() const { return plan_; }

 private:
  RunConfig config_;
  int64_t world_size_;
  at::ScalarType type_;
  kernels::KernelPlan plan_;
  int64_t parameter_count_ = 0, trained_count_ = 0;
  RemainingBackward remaining_;
  MemorySplit fixed_;  ///< what does not depend on the batch
};

}  // namespace adtrain
