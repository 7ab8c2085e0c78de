#pragma once

#include "kernels/block/attention_backward/AttentionSublayer.cuh"

/// Steps 2 and 5, and the end of the launch: sums for the parameters.
namespace adtrain::kernels::backward_pass {

template <class V>
__device__ void AttentionSublayer<V>::add_out_proj_sums() {
  if (has_out_proj()) add_sums(dprojected_, attention_output_, round_.first_output);
}

template <class V>
__device__ void AttentionSublayer<V>::add_in_proj_sums() {
  if (has_out_proj()) return;
  const bool of_queries = matrix() == 0;
  const int first_warp_tile = of_queries ? round_.first_output : first_keys();
  add_sums(of_queries ? dquery_ : (matrix() == 1 ? dkey_ : dvalue_), x_, first_warp_tile);
}

/// Adds the sums over the rows of `gradient` and `input`, from a warp tile on.
template <class V>
__device__ __forceinline__ void AttentionSublayer<V>::add_sums(Tile<kWidth> gradient, Tile<kWidth> input,
                                                               int first_warp_tile) {
  if constexpr (kByWarpgroups) {
    take_sums(weight_sums_);
    int warp_tile = first_warp_tile;
#pragma unroll 1
    for (; warp_tile + 4 <= warp_tiles_; warp_tile += 4) start_sums<4>(gradient, input, warp_tile);
    const int left = warp_tiles_ - warp_tile;
    if (left >= 2) start_sums<2>(gradient, input, warp_tile);
    if (left > 0 && left % 2 != 0) start_sums<1>(gradient, input, warp_tiles_ - 1);
  }
  Sums of_columns = {{column_sums_[0], column_sums_[0], column_sums_[1], column_sums_[1]}};
#pragma unroll 4
  for (int warp_tile = first_warp_tile; warp_tile < warp_tiles_; ++warp_tile) {
    const int row = kWarpTile * warp_tile;
    const LeftFragment left = left_of_transposed(from_row(gradient, row), 0, first_of_matrix());
    multiply_add(of_columns, left, kOnes, kOnes);
    if constexpr (!kByWarpgroups) {
#pragma unroll
      for (int i = 0; i < kSixteens; ++i) {
        multiply_add(weight_sums_[2 * i], weight_sums_[2 * i + 1], left,
                     right_of(from_row(input, row), 0, 16 * i));
      }
    }
  }
  column_sums_[0] = of_columns.value[0];
  column_sums_[1] = of_columns.value[2];
  if constexpr (kByWarpgroups) {
    products_arrived<0>();
    take_sums(weight_sums_);
  }
}

/// Starts the products of neighbouring warp tiles.
template <class V>
template <int WarpTiles>
__device__ __forceinline__ void AttentionSublayer<V>::start_sums(Tile<kWidth> gradient, Tile<kWidth> input,
                                                                 int warp_tile) {
  const Tile<kWidth> left = from_row(gradient, kWarpTile * warp_tile),
                     right = from_row(input, kWarpTile * warp_tile);
  begin_products();
#pragma unroll
  for (int i = 0; i < WarpTiles; ++i) start_product_over_rows<Bf16>(weight_sums_, left, right, kWarpTile * i);
  close_products();
}

template <class V>
__device__ void AttentionSublayer<V>::clear_sums() {
  norm_sums_ = no_sums();
  column_sums_[0] = column_sums_[1] = 0.0f;
#pragma unroll
  for (Sums& eight : weight_sums_) eight = no_sums();
}

template <class V>
__device__ void AttentionSublayer<V>::write_sums() {
  constexpr auto kPlaces = V::Block::Gradients::of(kWidth);
  float* part = job_.parts + int64_t{blockIdx.x} * kPlaces.total;
  clear_gaps<kPlaces.in_proj_bias, 3 * kWidth, kPlaces.out_proj_weight>(part);
  if constexpr (kNormAfter) {
    clear_gaps<kPlaces.out_proj_bias, kWidth, kPlaces.norm1_weight>(part);
    clear_gaps<kPlaces.norm1_weight, kWidth, kPlaces.norm1_bias>(part);
    clear_gaps<kPlaces.norm1_bias, kWidth, kPlaces.total>(part);
  } else {
    clear_gaps<kPlaces.out_proj_bias, kWidth, kPlaces.total>(part);
  }

  const float scale = has_out_proj() ? hidden_scale() : 1.0f;
  const int third = has_out_proj() ? 0 : matrix();
  float* const weight = part + (has_out_proj() ? kPlaces.out_proj_weight : kPlaces.in_proj_weight);
  float* const bias = part + (has_out_proj() ? kPlaces.out_proj_bias : kPlaces.in_proj_bias);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int row = first_of_matrix() + place_.row + 8 * half;
    if (!has_out_proj()) row = V::in_proj_row(third, row);
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      const float* const value = weight_sums_[eight].value + 2 * half;
      *reinterpret_cast<float2*>(weight + row * kWidth + 8 * eight + place_.column) = {scale * value[0],
                                                                                       scale * value[1]};
    }
    if (place_.column == 0) bias[row] = scale * column_sums_[half];
  }
  if constexpr (kNormAfter) write_norm_sums(part + kPlaces.norm1_weight, part + kPlaces.norm1_bias);
}

template <class V>
template <int Begin, int Size, int End>
__device__ void AttentionSublayer<V>::clear_gaps(float* part) const {
#pragma unroll 1
  for (int i = Begin + Size + threadIdx.x; i < End; i += P::kThreads) part[i] = 0.0f;
}

template <class V>
__device__ void AttentionSublayer<V>::write_norm_sums(float* weight, float* bias) {
  float* slots = reinterpret_cast<float*>(shared_);  // (warps, 2, kWidth)
  if (place_.row < kEights) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      slots[2 * kWidth * warp_ + kWidth * (i / 2) + 8 * place_.row + place_.column + i % 2] =
          norm_sums_.value[i];
    }
  }
  __syncthreads();
  const int column = threadIdx.x;
  if (column >= 2 * kWidth) return;
  float sum = 0.0f;
#pragma unroll
  for (int other = 0; other < P::kWarps; ++other) sum += slots[2 * kWidth * other + column];
  (column < kWidth ? bias : weight)[column % kWidth] = sum;
}

}  // namespace adtrain::kernels::backward_pass
