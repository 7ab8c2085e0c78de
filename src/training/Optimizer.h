#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/optimizer/AdamWKernel.h"
#include "parallel/FlatShards.h"
#include "training/LossScale.h"
#include "training/TrainingOptions.h"

namespace adtrain {

/// AdamW (Loshchilov and Hutter, 2019) with gradient clipping, over flat buffers on the device, without host
/// synchronisation. Weight decay applies to every parameter, as in the Python projects. torch's operators,
/// which run on the CPU, define the update; on GPUs AdamWKernel computes the same.
///
/// Sharded, each rank has the moments of its shard alone and updates these parameters. Then all ranks receive
/// the others', while the next bucket is updated: in 16 bits where the forward pass reads such a copy, else
/// in fp32. The ranks decide together, by the sums over all shards, how to clip and whether to skip the step.
class Optimizer {
 public:
  /// `parameters`: the model's flat fp32 buffer (n), updated in place. `shards`: of this buffer, borrowed;
  /// null where each rank updates all of it. With shards step() is collective.
  Optimizer(const at::Tensor& parameters, const TrainingOptions& options, FlatShards* shards = nullptr);

  /// Sets the rate of the following steps. It is stored on the device, where a captured step reads it.
  void set_learning_rate(double rate);
  /// One update with the global-batch gradient (n), which is zero afterwards, ready for the next step's sums;
  /// with shards only this rank's elements of it are read.
  /// With `loss_scale` the gradient is first divided by its factor, and where it overflowed nothing is
  /// updated. `low_precision` (n), of a 16-bit type, also receives the rounded parameters; undefined for
  /// none.
  void step(const at::Tensor& gradient, LossScale* loss_scale = nullptr,
            const at::Tensor& low_precision = {});

  /// Whether this rank has but a shard of the moments.
  bool sharded() const { return shards_ != nullptr; }
  /// Makes the fp32 parameters whole on every rank. Where all ranks receive 16-bit ones in each step, of the
  /// fp32 ones only this rank's shard is up to date. Collective, if sharded; does nothing where they are
  /// whole.
  void gather_parameters();

  /// Of both moments.
  int64_t bytes() const { return static_cast<int64_t>(first_moment_.nbytes() + second_moment_.nbytes()); }

  /// L2 norm of the last gradient before clipping: a scalar on the device.
  const at::Tensor& gradient_norm() const { return gradient_norm_; }

  /// Both, (n) each, in the layout of the parameters.
  struct Moments {
    at::Tensor first, second;
  };
  /// For checkpoints: the moments themselves, or, of shards, copies on rank 0's CPU, and undefined tensors on
  /// the other ranks. Collective, if sharded.
  Moments moments_on_root();
  /// The opposite, of shards alone: each rank takes its share of the moments that rank 0 passes. Collective.
  void take_moments_of_root(const Moments& moments);

  /// The state, for checkpoints: (n), or the shard's size, twice, and a scalar, float32; writing into them
  /// restores it.
  at::Tensor& first_moment() { return first_moment_; }
  at::Tensor& second_moment() { return second_moment_; }
  at::Tensor& step_count() { return step_count_; }

 private:
  void step_by_operators(const at::Tensor& gradient, LossScale* loss_scale, const at::Tensor& low_precision);
  void step_by_kernels(const at::Tensor& gradient, LossScale* loss_scale, const at::Tensor& low_precision);
  /// The L2 norm over all shards; `overflow`, where given, becomes 1 where any of them overflows.
  at::Tensor norm_over_ranks(const std::vector<at::Tensor>& gradients, std::optional<at::Tensor> overflow);
  /// Passes on what this rank has updated of part number `index`.
  void start_all_gather(size_t index, const at::Tensor& low_precision);

  FlatShards* shards_;
  /// What this rank updates: its part of each bucket, or all as one part.
  std::vector<FlatShards::Place> parts_;
  bool rounded_ = false;  ///< whether other ranks' parameters come in 16 bits
  at::Tensor parameters_, first_moment_, second_moment_, step_count_, gradient_norm_, learning_rate_;
  at::Tensor kernel_memory_;  ///< an AdamWMemory as bytes; undefined on the CPU
  AdamWRule rule_;
};

}  // namespace adtrain
