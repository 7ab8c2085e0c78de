#pragma once

#include <cstdint>

#include "model/kernels/fused/BlockTensors.h"
#include "model/kernels/fused/block_forward/Memory.cuh"
#include "model/kernels/fused/block_forward/Strips.cuh"

/// What a launch works on, and of that the one sequence that a group has in hand.
namespace adtrain::kernels::forward_pass {

/// What a launch works on.
struct Job {
  BlockShape shape;
  BlockWeights weights;
  KeepBits keep;
  BlockActivations activations;
  Bf16* y;
};

/// A sequence in the hands of a group.
template <int Width>
struct Sequence {
  const Job& job;
  const Memory<Width>& memory;
  int number;
  int warp;    ///< of the group
  int parity;  ///< of the sequences that the group has taken before

  __device__ Sequence next() const {
    return {job, memory, number + kGroups * static_cast<int>(gridDim.x), warp, 1 - parity};
  }
  __device__ float* longest() const { return memory.longest + parity * kMostHeads; }
  /// Its first stream's, or its second's.
  __device__ const Bf16* x(bool second) const {
    const int64_t before = int64_t{number} * job.shape.length() + (second ? job.shape.tokens : 0);
    return job.activations.x + before * Width;
  }
};

}  // namespace adtrain::kernels::forward_pass
