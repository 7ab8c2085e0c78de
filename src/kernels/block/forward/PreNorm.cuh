#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/resident/forward/DropoutWords.cuh"
#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/Sequence.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/block/forward/Attention.cuh"
#include "kernels/block/forward/Norm.cuh"
#include "kernels/block/pre_norm/PreNormTensors.h"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// What is specific to a pre-norm block in the forward pass, whose kernel is the attention sublayer. Queries
/// and keys are rotated by their positions, and the residual stream is not attention's input.
namespace adtrain::kernels::forward_pass {

/// Maps a row of in_proj to its row in shared memory. In global memory the rows are ordered by heads; in
/// shared memory the queries' rows come first, then the keys' and the values', as the rest of the kernel
/// expects. Within a head the features of queries and keys are permuted, which does not change their
/// products. A pair i and i + HeadSize / 2, which is rotated together, is in two neighbouring columns of one
/// lane. The lane's HeadSize / 8 pairs are neighbours, so that it loads their cosines at once.
template <int Width, int HeadSize>
struct RotaryOrder {
  __device__ int operator()(int row) const {
    constexpr int kPairs = HeadSize / 2, kOfLane = HeadSize / 8;
    const int head = row / (3 * HeadSize), third = row / HeadSize % 3, feature = row % HeadSize;
    const int pair = feature % kPairs, which = feature / kPairs;
    const int column = third == 2 ? feature : 8 * (pair % kOfLane) + 2 * (pair / kOfLane) + which;
    return third * Width + head * HeadSize + column;
  }
};

/// Cosines and sines for the tokens of the lane's two rows of a warp tile, in its columns of any head.
template <int HeadSize>
class HeadRotary {
 public:
  /// Loads those of the warp tile from token `first` on. Rows beyond the last token repeat that token.
  template <class Job>
  __device__ HeadRotary(const Job& job, int first, unsigned lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = min(first + lane_place(lane).row + 8 * half, job.shape.tokens - 1);
      const int pair = token * (HeadSize / 2) + kOfLane * lane_place(lane).column / 2;
      cosines_[half] = *reinterpret_cast<const OfLane*>(job.attention.cosines + pair);
      sines_[half] = *reinterpret_cast<const OfLane*>(job.attention.sines + pair);
    }
  }

  /// Rotates the columns of one or more heads.
  template <int Eights>
  __device__ void rotate(Sums (&sums)[Eights]) const {
#pragma unroll
    for (int i = 0; i < 2 * Eights; ++i) {
      const int eight = i / 2, half = i % 2;
      const float cosine = cosines_[half].of[eight % kOfLane], sine = sines_[half].of[eight % kOfLane];
      float* value = sums[eight].value + 2 * half;
      const float first = value[0], second = value[1];
      value[0] = fmaf(first, cosine, -second * sine);
      value[1] = fmaf(second, cosine, first * sine);
    }
  }

 private:
  static constexpr int kOfLane = HeadSize / 8;  ///< the lane's pairs of a head

  struct alignas(kOfLane * sizeof(float)) OfLane {
    float of[kOfLane];
  };
  OfLane cosines_[2], sines_[2];
};

struct PreNorm : ProjectingBlock {
  /// The arguments of a launch.
  struct Job {
    BlockShape shape;
    PreNormAttention attention;
    const Bf16* x;
    Bf16* x1;

    __host__ __device__ const uint32_t* attention_keep() const { return attention.keep; }
    __device__ float attention_scale() const { return attention.scale; }
    __device__ const Bf16* input() const { return attention.normed; }
    __device__ Bf16* attention_output() const { return attention.attention_output; }
    __device__ float* lse() const { return attention.lse; }
  };
  /// The kernel has no memory besides that of attention.
  template <int Width>
  struct OwnMemory {
    static constexpr int kMatrices = 0, kVectors = 0;
    __device__ OwnMemory(char*, char*) {}
  };
  template <int HeadSize>
  using Rotary = HeadRotary<HeadSize>;
  static constexpr bool kResidualApart = true;
  static constexpr bool kPadded = false;

  template <int HeadSize, int Width>
  static __device__ void copy_weights(const Memory<PreNorm, Width>& memory, const Job& job) {
    const RotaryOrder<Width, HeadSize> order = {};
    const PreNormAttention& from = job.attention;
    copy_in_feature_order_of_rows(memory.out_proj, from.out_proj_weight, Width);
    copy_in_feature_order_of_columns(memory.in_proj, from.in_proj_weight, 3 * Width, order);
    copy_vector(memory.in_proj_bias, from.in_proj_bias, 3 * Width, order);
    copy_vector(memory.out_proj_bias, from.out_proj_bias, Width);
  }

  /// Prefetches the dropout words and the residual stream.
  template <int HeadSize, bool Dropout, int Width>
  static __device__ void prefetch_for(const Sequence<PreNorm, Width>& sequence, const WarpTile& warp_tile) {
    const Job& job = sequence.job;
    const int lane = lane_anew();
    if (Dropout)
      prefetch_attention_dropout_mask<Width, HeadSize>(job.shape, job.attention.keep, warp_tile, lane);
    const int row = min(kWarpTile * warp_tile.number + lane % kWarpTile, job.shape.tokens - 1);
    if (lane < kWarpTile) prefetch(sequence.rows(job.x, warp_tile.second) + row * Width);
  }

  /// The residual stream, which is not attention's input x.
  template <bool Dropout, int Width>
  static __device__ Residual<Width> residual_of(const Features<Width>&,
                                                const Sequence<PreNorm, Width>& sequence,
                                                const WarpTile& warp_tile) {
    Residual<Width> residual = {};
    if (warp_tile.exists()) residual.x = load_warp_tile(sequence, sequence.job.x, warp_tile);
    return residual;
  }

  /// Adds attention's projected output to the residual stream. load_next: as in a post-norm block.
  template <bool Dropout, int Width, class Next>
  static __device__ __forceinline__ void finish(LeftFragment (&attention_output)[Width / 16],
                                                Residual<Width>& residual,
                                                const Sequence<PreNorm, Width>& sequence,
                                                const WarpTile& warp_tile, const Next& load_next) {
    Sums sums[Width / 8];
    project_output(sums, attention_output, sequence.memory);
    const unsigned lane = lane_anew();
    add_residual<false>(sums, residual, 1.0f, lane);
    load_next();
    Features<Width>::rounded(sums).store(sequence.job.x1, warp_tile, lane);
  }
};

}  // namespace adtrain::kernels::forward_pass
