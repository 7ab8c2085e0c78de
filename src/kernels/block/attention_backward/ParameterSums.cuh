#pragma once

#include "kernels/block/attention_backward/AttentionSublayer.cuh"

/// Steps 2 and 5, and the end of the launch: sums for the parameters.
namespace adtrain::kernels::backward_pass {

template <class V>
__device__ void AttentionSublayer<V>::add_out_proj_sums() {
#pragma unroll 2
  for (int warp_tile = round_.first_output + share(); warp_tile < warp_tiles_; warp_tile += kShares) {
    multiply_add(out_proj_sums_[0], out_proj_sums_[1],
                 left_of_transposed(from_row(dprojected_, kWarpTile * warp_tile), 0, block_row()),
                 right_of(from_row(attention_output_, kWarpTile * warp_tile), 0, block_column()));
  }
  if (summed_tile() == 3) add_columns(dprojected_, round_.first_output);
}

template <class V>
__device__ void AttentionSublayer<V>::add_in_proj_sums() {
  int warp_tile = first_keys() + share();
  for (; warp_tile < round_.first_output; warp_tile += kShares) add_in_proj_tile<false>(warp_tile);
#pragma unroll 2
  for (; warp_tile < warp_tiles_; warp_tile += kShares) add_in_proj_tile<true>(warp_tile);
  if (summed_tile() == 0) add_columns(dquery_, round_.first_output);
  if (summed_tile() == 1) add_columns(dkey_, first_keys());
  if (summed_tile() == 2) add_columns(dvalue_, first_keys());
}

template <class V>
template <bool HasOutput>
__device__ void AttentionSublayer<V>::add_in_proj_tile(int warp_tile) {
  const int row = kWarpTile * warp_tile;
  const RightFragments x = right_of(from_row(x_, row), 0, block_column());
  if constexpr (HasOutput) {
    multiply_add(in_proj_sums_[0][0], in_proj_sums_[0][1],
                 left_of_transposed(from_row(dquery_, row), 0, block_row()), x);
  }
  multiply_add(in_proj_sums_[1][0], in_proj_sums_[1][1],
               left_of_transposed(from_row(dkey_, row), 0, block_row()), x);
  multiply_add(in_proj_sums_[2][0], in_proj_sums_[2][1],
               left_of_transposed(from_row(dvalue_, row), 0, block_row()), x);
}

template <class V>
__device__ void AttentionSublayer<V>::add_columns(Tile<kWidth> tile, int first_warp_tile) {
  Sums sums = {{column_sums_[0], column_sums_[0], column_sums_[1], column_sums_[1]}};
#pragma unroll 4
  for (int warp_tile = first_warp_tile; warp_tile < warp_tiles_; ++warp_tile) {
    multiply_add(sums, left_of_transposed(from_row(tile, kWarpTile * warp_tile), 0, summed_column()), kOnes,
                 kOnes);
  }
  column_sums_[0] = sums.value[0];
  column_sums_[1] = sums.value[2];
}

template <class V>
__device__ void AttentionSublayer<V>::clear_sums() {
  out_proj_sums_[0] = out_proj_sums_[1] = norm_sums_ = no_sums();
  column_sums_[0] = column_sums_[1] = 0.0f;
#pragma unroll
  for (Sums(&third)[2] : in_proj_sums_) third[0] = third[1] = no_sums();
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

  if constexpr (kShares > 1) add_shares();
  if (share() == 0) {
#pragma unroll
    for (int third = 0; third < 3; ++third) {
      write_block(part + kPlaces.in_proj_weight + V::in_proj_row(third, 0) * kWidth, in_proj_sums_[third],
                  [](int row) { return V::in_proj_row(0, row); });
    }
    multiply_by(out_proj_sums_, hidden_scale());
    write_block(part + kPlaces.out_proj_weight, out_proj_sums_, [](int row) { return row; });
  }
  if (place_.column == 0) {
    float* to = summed_tile() == 3 ? part + kPlaces.out_proj_bias
                                   : part + kPlaces.in_proj_bias + V::in_proj_row(summed_tile(), 0);
    const float scale = summed_tile() == 3 ? hidden_scale() : 1.0f;
    const auto place_of = [this](int column) {
      return summed_tile() == 3 ? column : V::in_proj_row(0, column);
    };
    to[place_of(summed_column() + place_.row)] = column_sums_[0] * scale;
    to[place_of(summed_column() + place_.row + 8)] = column_sums_[1] * scale;
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
template <class PlaceOf>
__device__ void AttentionSublayer<V>::write_block(float* matrix, const Sums (&sums)[2],
                                                  PlaceOf place_of) const {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = block_row() + place_.row + 8 * (i % 2),
              column = block_column() + 8 * (i / 2) + place_.column;
    *reinterpret_cast<float2*>(matrix + place_of(row) * kWidth + column) = {
        sums[i / 2].value[2 * (i % 2)], sums[i / 2].value[2 * (i % 2) + 1]};
  }
}

/// The first share adds the sums of the others to its own.
template <class V>
__device__ void AttentionSublayer<V>::add_shares() {
  constexpr int kSums = 8;  ///< Sums of a lane
  float* slots = reinterpret_cast<float*>(shared_) + 4 * kSums * kWarp * owner() + threadIdx.x % kWarp;
#pragma unroll 1
  for (int giver = 1; giver < kShares; ++giver) {
    if (share() == giver) {
#pragma unroll
      for (int i = 0; i < 4 * kSums; ++i) slots[kWarp * i] = block_sums(i / 4).value[i % 4];
    }
    __syncthreads();
    if (share() == 0) {
#pragma unroll
      for (int i = 0; i < 4 * kSums; ++i) block_sums(i / 4).value[i % 4] += slots[kWarp * i];
    }
    __syncthreads();
  }
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
