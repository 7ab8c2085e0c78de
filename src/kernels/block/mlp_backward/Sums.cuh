#pragma once

#include "kernels/block/mlp_backward/Memory.cuh"
#include "kernels/primitives/WarpgroupProducts.cuh"

/// A thread block's sums over its rows for the parameters, and how they are stored at the end.
namespace adtrain::kernels::mlp_backward_pass {

/// A warp's sums over the thread block's rows.
template <int Width>
struct WeightSums {
  Sums linear1[kUnitWarpTiles][Width / 8];  ///< dhᵀ x1: (32 hidden units, D)
  Sums linear2[kUnitWarpTiles][Width / 8];  ///< aᵀ df: (32 hidden units, D), the gradient's transpose
  Sums linear1_bias;  ///< even columns: the first 16 hidden units; odd ones: the other 16
};

/// As take_sums() of their products.
template <int Width>
__device__ __forceinline__ void take_sums(WeightSums<Width>& sums) {
#pragma unroll
  for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
    kernels::take_sums(sums.linear1[warp_tile]);
    kernels::take_sums(sums.linear2[warp_tile]);
  }
}

template <int Width>
__device__ void clear(WeightSums<Width>& sums) {
#pragma unroll
  for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
#pragma unroll
    for (int n = 0; n < Width / 8; ++n) sums.linear1[warp_tile][n] = sums.linear2[warp_tile][n] = no_sums();
  }
  sums.linear1_bias = no_sums();
}

/// Stores a warp's sums for the matrices and linear1's bias in the thread block's part.
template <int Width>
__device__ void store_hidden_sums(const WeightSums<Width>& sums, float* part) {
  constexpr MlpGradients kGradients = MlpGradients::of(Width);
  constexpr int kInner = 4 * Width;
  const LanePlace lane = lane_place();
#pragma unroll
  for (int warp_tile = 0; warp_tile < kUnitWarpTiles; ++warp_tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int unit = first_unit(warp_tile) + 8 * half + lane.row;
#pragma unroll
      for (int n = 0; n < Width / 8; ++n) {
        const int column = 8 * n + lane.column;
        const Sums &first = sums.linear1[warp_tile][n], &second = sums.linear2[warp_tile][n];
        *reinterpret_cast<float2*>(part + kGradients.linear1_weight + unit * Width + column) = {
            first.value[2 * half], first.value[2 * half + 1]};
        float* linear2 = part + kGradients.linear2_weight + column * kInner + unit;
        linear2[0] = second.value[2 * half];
        linear2[kInner] = second.value[2 * half + 1];
      }
      if (lane.column == 0)
        part[kGradients.linear1_bias + unit] = sums.linear1_bias.value[2 * half + warp_tile];
    }
  }
}

/// Stores the threads' column sums in the thread block's part. At width 32 a warp has each column twice, for
/// different rows.
template <int Width>
__device__ void store_column_sums(const Memory<Width>& memory, float* part) {
  constexpr MlpGradients kGradients = MlpGradients::of(Width);
  constexpr int kVector = kGradients.norm2_weight - kGradients.linear2_bias;
  const auto* norm2 = reinterpret_cast<const float(*)[4]>(memory.norm2_sums);
  const auto* linear2_bias = reinterpret_cast<const float(*)[2]>(memory.linear2_bias_sums);
  for (int column = norm_thread<Width>(); column < kVector; column += kNormThreads) {
    float weight = 0.0f, bias = 0.0f, linear2 = 0.0f;
    for (int warp = 0; column < Width && warp < kNormWarps; ++warp) {
      for (int chunk = column / kChunk; chunk < 8; chunk += Width / kChunk) {
        const int thread = kWarp * warp + 4 * (column % kChunk) + chunk / 2;
        weight += norm2[thread][chunk % 2];
        bias += norm2[thread][2 + chunk % 2];
        linear2 += linear2_bias[thread][chunk % 2];
      }
    }
    part[kGradients.norm2_weight + column] = weight;
    part[kGradients.norm2_bias + column] = bias;
    part[kGradients.linear2_bias + column] = linear2;
  }
}

}  // namespace adtrain::kernels::mlp_backward_pass
