#pragma once

#include "kernels/block/attention_backward/AttentionSublayer.cuh"

/// Steps 1 and 4: from gradients and tokens to the inputs of step 3, and from step 3's gradients to dx.
namespace adtrain::kernels::backward_pass {

/// A warpgroup's products with each of the left operands, which start(left, column) starts, until they have
/// arrived.
template <int Count, int Steps, class Start>
__device__ __forceinline__ void multiply_together(Sums (&sums)[Count], LeftFragment (&left)[Steps],
                                                  const Start& start) {
  take_sums(sums);
  begin_products();
#pragma unroll
  for (int i = 0; i < Steps; ++i) start(left[i], 16 * i);
  close_products();
  products_arrived<0>();
  take_sums(sums);
  hold(left);
}

/// sums += left · weightᵀ with a weight (32, D), by the warps of a group together.
template <class V>
__device__ __forceinline__ void AttentionSublayer<V>::add_product_with_rows(Sums (&sums)[4],
                                                                            LeftFragment (&left)[kSixteens],
                                                                            Tile<kWidth> weight) {
  if constexpr (kByWarpgroups) {
    multiply_together(sums, left, [&](const LeftFragment& of_columns, int column) {
      start_product_with_rows<Bf16>(sums, of_columns, weight, column);
    });
  } else {
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
#pragma unroll
      for (int out = 0; out < 2; ++out) {
        multiply_add(sums[2 * out], sums[2 * out + 1], left[i],
                     right_of_transposed(weight, 16 * out, 16 * i));
      }
    }
  }
}

/// sums += left · weight with a weight (D, D), likewise.
template <class V>
__device__ __forceinline__ void AttentionSublayer<V>::add_product_over_rows(Sums (&sums)[kEights],
                                                                            LeftFragment (&left)[kSixteens],
                                                                            Tile<kWidth> weight) {
  if constexpr (kByWarpgroups) {
    multiply_together(sums, left, [&](const LeftFragment& of_columns, int row) {
      start_product_over_rows<Bf16>(sums, of_columns, weight, row);
    });
  } else {
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
#pragma unroll
      for (int out = 0; out < kSixteens; ++out) {
        multiply_add(sums[2 * out], sums[2 * out + 1], left[i], right_of(weight, 16 * i, 16 * out));
      }
    }
  }
}

/// What a group's warps multiply together they multiply where one of them needs it. Rows of warp tiles
/// without outputs, or without tokens, get numbers that nothing reads.
template <class V>
__device__ void AttentionSublayer<V>::prepare(int warp_tile, Sums& deltas, OwnKeys& own) {
  const bool group_has_output = has_output(group_of(warp_tile));
  LeftFragment dprojected[kSixteens] = {};
  if (has_output(warp_tile)) {
    if constexpr (kNormAfter) {
      norm_backward(warp_tile, dprojected);
    } else {
      take_gradients(warp_tile, dprojected);
    }
    __syncwarp();  // all lanes have read dx1 and normed1
  }
  if (of_queries()) fetch_warp_tile(context_, warp_tile, tokens_of(false), 0);
  if (group_has_output) project_back(warp_tile, dprojected);
  const RopeOfBlock angles = angles_of(warp_tile);
  copies_arrived();
  __syncwarp();
  if (has_output(warp_tile)) add_deltas(warp_tile, deltas);

  LeftFragment x[kSixteens];
  load_tokens(x, x_, warp_tile);
  if (group_has_output) {
    project(query_, 0, warp_tile, x, kLog2E / std::sqrt(static_cast<float>(kHeadSize)), angles);
  }
  if (of_queries()) {
    if (group_has_output) {
      projected(own.key, 1, x, 1.0f, angles);
      projected(own.value, 2, x, 1.0f, NoRope{});
    }
    load_tokens(x, context_, warp_tile);
  }
  project(key_, 1, warp_tile, x, 1.0f, angles);
  project(value_, 2, warp_tile, x, 1.0f, NoRope{});
}

template <class V>
__device__ void AttentionSublayer<V>::load_tokens(LeftFragment (&x)[kSixteens], Tile<kWidth> from,
                                                  int warp_tile) const {
#pragma unroll
  for (int i = 0; i < kSixteens; ++i) x[i] = left_of(from_row(from, kWarpTile * warp_tile), 0, 16 * i);
  __syncwarp();
}

/// Without a norm, dp is dx1.
template <class V>
__device__ void AttentionSublayer<V>::take_gradients(int warp_tile,
                                                     LeftFragment (&dprojected)[kSixteens]) const {
  const int row = kWarpTile * warp_tile;
#pragma unroll
  for (int i = 0; i < kSixteens; ++i) {
    dprojected[i] = left_of(from_row(dx1_, row), 0, 16 * i);
    set_left(from_row(dprojected_, row), 0, 16 * i, dprojected[i]);
  }
}

/// From dx1 and normed1: du, which is stored in dx until step 4, and dp without hidden dropout's scale.
template <class V>
__device__ void AttentionSublayer<V>::norm_backward(int warp_tile, LeftFragment (&dprojected)[kSixteens]) {
  const int row = kWarpTile * warp_tile, token = row + place_.row;
  uint32_t keep[2][kWidth / 32];
  load_projection_words(token, keep);
  add_norm_sums(row);

  uint32_t weight[kEights];
  LeftFragment dx1[kSixteens], normed[kSixteens];
  Sums g_sum = no_sums(), g_normed_sum = no_sums();  // the same in all columns
#pragma unroll
  for (int i = 0; i < kSixteens; ++i) {
    dx1[i] = left_of(from_row(dx1_, row), 0, 16 * i);
    normed[i] = left_of(from_row(normed1_, row), 0, 16 * i);
#pragma unroll
    for (int eight = 2 * i; eight < 2 * i + 2; ++eight) {
      weight[eight] = *reinterpret_cast<const uint32_t*>(norm1_weight_ + 8 * eight + place_.column);
    }
    multiply_add(g_sum, dx1[i], weight[2 * i], weight[2 * i + 1]);
    multiply_add(g_normed_sum, multiplied(dx1[i], normed[i]), weight[2 * i], weight[2 * i + 1]);
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float inverse = inverse_[token + 8 * half];
    const float shift = g_sum.value[2 * half] * (-1.0f / kWidth) * inverse;
    const float slope = g_normed_sum.value[2 * half] * (-1.0f / kWidth) * inverse;
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      const int part = 2 * (eight % 2) + half;
      const float2 d = unpacked(dx1[eight / 2].part[part]), n = unpacked(normed[eight / 2].part[part]);
      const float2 by = unpacked(weight[eight]);
      dprojected[eight / 2].part[part] = packed(fmaf(d.x * by.x, inverse, fmaf(n.x, slope, shift)),
                                                fmaf(d.y * by.y, inverse, fmaf(n.y, slope, shift)));
    }
    if (is_output(token + 8 * half)) {
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        *reinterpret_cast<uint32_t*>(dx_of(token + 8 * half) + 8 * eight) =
            dprojected[eight / 2].part[2 * (eight % 2) + half];
      }
    }
  }
  drop(dprojected, keep);
#pragma unroll
  for (int i = 0; i < kSixteens; ++i) set_left(from_row(dprojected_, row), 0, 16 * i, dprojected[i]);
}

/// Adds the column sums of dx1 and of dx1 · normed1. They are products with ones; each 8 columns have a row
/// of their own.
template <class V>
__device__ void AttentionSublayer<V>::add_norm_sums(int row) {
#pragma unroll
  for (int i = 0; i < kSixteens; ++i) {
    const RightFragments dx1 = right_of(from_row(dx1_, row), 0, 16 * i),
                         normed = right_of(from_row(normed1_, row), 0, 16 * i);
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const uint32_t ones = place_.row == 2 * i + eight ? kOnes : 0;
      const uint32_t *d = dx1.part + 2 * eight, *n = normed.part + 2 * eight;
      multiply_add(norm_sums_, {{ones, 0, ones, 0}}, d[0], d[1]);
      multiply_add(norm_sums_, {{0, ones, 0, ones}}, multiplied(d[0], n[0]), multiplied(d[1], n[1]));
    }
  }
}

template <class V>
__device__ void AttentionSublayer<V>::load_projection_words(int token,
                                                            uint32_t (&keep)[2][kWidth / 32]) const {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = rows_before() + round_.nearest_row(token + 8 * half);
#pragma unroll
    for (int word = 0; word < kWidth / 32; ++word) {
      keep[half][word] =
          job_.keep.projection == nullptr ? ~0u : job_.keep.projection[row * (kWidth / 32) + word];
    }
  }
}

template <class V>
__device__ void AttentionSublayer<V>::drop(LeftFragment (&dprojected)[kSixteens],
                                           const uint32_t (&keep)[2][kWidth / 32]) const {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int word = 0; word < kWidth / 32; ++word) {
      const uint32_t first = keep[half][word] << (7 - place_.column),
                     second = keep[half][word] << (6 - place_.column);
      dprojected[2 * word].part[half] &= pair_mask<0>(first, second);
      dprojected[2 * word].part[half + 2] &= pair_mask<1>(first, second);
      dprojected[2 * word + 1].part[half] &= pair_mask<2>(first, second);
      dprojected[2 * word + 1].part[half + 2] &= pair_mask<3>(first, second);
    }
  }
}

/// From dp to d_attention_output.
template <class V>
__device__ void AttentionSublayer<V>::project_back(int warp_tile, LeftFragment (&dprojected)[kSixteens]) {
  Sums sums[kEights];
#pragma unroll
  for (Sums& eight : sums) eight = no_sums();
  add_product_over_rows(sums, dprojected, out_proj_);
  multiply_by(sums, hidden_scale() * attention_scale());
#pragma unroll
  for (int i = 0; i < kSixteens; ++i) {
    set_left(from_row(d_attention_output_, kWarpTile * warp_tile), 0, 16 * i,
             as_left(sums[2 * i], sums[2 * i + 1]));
  }
}

/// Adds the deltas. Sums over the columns of a head are products with ones, which have a column for each
/// head. The summands are exact, with the rounding error of each product added, because deltas are subtracted
/// from large sums.
template <class V>
__device__ void AttentionSublayer<V>::add_deltas(int warp_tile, Sums& deltas) const {
  const int row = kWarpTile * warp_tile;
#pragma unroll
  for (int i = 0; i < kSixteens; ++i) {
    const LeftFragment d_attention_output = left_of(from_row(d_attention_output_, row), 0, 16 * i),
                       attention_output = left_of(from_row(attention_output_, row), 0, 16 * i);
    const LeftFragment products = multiplied(d_attention_output, attention_output);
    const uint32_t low = place_.row == 2 * i / kHeadEights ? kOnes : 0;
    const uint32_t high = place_.row == (2 * i + 1) / kHeadEights ? kOnes : 0;
    multiply_add(deltas, products, low, high);
    multiply_add(deltas, rest_of(products, d_attention_output, attention_output), low, high);
  }
  const float scale = __fdividef(1.0f, attention_scale());  // attention_output includes this scale, too
#pragma unroll
  for (float& delta : deltas.value) delta *= scale;
}

/// Projects x by a third of in_proj, scaled by `scale` and rotated.
template <class V>
template <class Angles>
__device__ void AttentionSublayer<V>::project(Tile<kWidth> to, int third, int warp_tile,
                                              LeftFragment (&x)[kSixteens], float scale,
                                              const Angles& angles) const {
  LeftFragment columns[kSixteens];
  projected(columns, third, x, scale, angles);
#pragma unroll
  for (int i = 0; i < kSixteens; ++i) {
    set_left(from_row(to, kWarpTile * warp_tile), 0, 16 * i, columns[i]);
  }
}

template <class V>
template <class Angles>
__device__ void AttentionSublayer<V>::projected(LeftFragment (&columns)[kSixteens], int third,
                                                LeftFragment (&x)[kSixteens], float scale,
                                                const Angles& angles) const {
#pragma unroll
  for (int first = 0; first < kWidth; first += 32) {  // for all columns at once registers would be scarce
    const int column = third * kWidth + first;
    Sums sums[4];
#pragma unroll
    for (int eight = 0; eight < 4; ++eight) {
      const float2 bias =
          unpacked(*reinterpret_cast<const uint32_t*>(in_proj_bias_ + column + 8 * eight + place_.column));
      sums[eight] = {{bias.x, bias.y, bias.x, bias.y}};
    }
    add_product_with_rows(sums, x, from_row(in_proj_, column));
    multiply_by(sums, scale);
    angles.apply(sums);
#pragma unroll
    for (int i = 0; i < 2; ++i) columns[first / 16 + i] = as_left(sums[2 * i], sums[2 * i + 1]);
  }
}

/// Stores own keys and values in the tiles of dprojected and the attention output.
template <class V>
__device__ void AttentionSublayer<V>::store_own_keys(const OwnKeys (&own_keys)[P::kTilesOfWarp]) const {
  if (!of_queries()) return;
#pragma unroll
  for (int own = 0; own < P::kTilesOfWarp; ++own) {
    const int warp_tile = warp_tile_of(own);
    if (!has_output(warp_tile)) continue;
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      set_left(from_row(own_key_, kWarpTile * warp_tile), 0, 16 * i, own_keys[own].key[i]);
      set_left(from_row(own_value_, kWarpTile * warp_tile), 0, 16 * i, own_keys[own].value[i]);
    }
  }
  __syncwarp();
}

template <class V>
__device__ void AttentionSublayer<V>::make_dx(int warp_tile, const Residuals& du) const {
  Sums sums[kEights];
#pragma unroll
  for (Sums& eight : sums) eight = no_sums();
  const Group group = group_of(warp_tile);
  if constexpr (kByWarpgroups) take_sums(sums);
  if (has_output(group)) add_projected(sums, dquery_, 0, warp_tile);
  if (group.last >= first_keys()) {
    add_projected(sums, dkey_, 1, warp_tile);
    add_projected(sums, dvalue_, 2, warp_tile);
  }
  if constexpr (kByWarpgroups) {
    close_products();
    products_arrived<0>();
    take_sums(sums);
  }

  const int token = kWarpTile * warp_tile + place_.row;
  Bf16* const dx_of_row = dx_of(token);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (exists(token + 8 * half)) {
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const float* const value = sums[eight].value + 2 * half;
        float2 dx = {value[0], value[1]};
        if constexpr (kNormAfter) {
          const float2 residual = unpacked(du.pair[half][eight]);
          dx = {residual.x + value[0], residual.y + value[1]};
        }
        *reinterpret_cast<uint32_t*>(dx_of_row + 8 * half * kWidth + 8 * eight) =
            has_keys(warp_tile) ? packed(dx.x, dx.y) : 0;
      }
    }
  }
}

/// Loads du, which norm_backward() has stored in dx, long before it is used.
template <class V>
__device__ void AttentionSublayer<V>::load_residuals(int warp_tile, Residuals& du) const {
  if constexpr (!kNormAfter) return;
  const int token = kWarpTile * warp_tile + place_.row;
  const Bf16* const dx_of_row = dx_of(token);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool has_residual = is_output(token + 8 * half);
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      if (has_residual)
        du.pair[half][eight] = *reinterpret_cast<const uint32_t*>(dx_of_row + 8 * half * kWidth + 8 * eight);
    }
  }
}

/// Adds a third's gradients times its part of in_proj. A warpgroup starts these products.
template <class V>
__device__ __forceinline__ void AttentionSublayer<V>::add_projected(Sums (&sums)[kEights],
                                                                    Tile<kWidth> gradient, int third,
                                                                    int warp_tile) const {
  const Tile<kWidth> weight = from_row(in_proj_, third * kWidth);
  if constexpr (kByWarpgroups) {
    const Tile<kWidth> of_group = from_row(gradient, kWarpTile * group_of(warp_tile).first);
    begin_products();
#pragma unroll
    for (int column = 0; column < kWidth; column += 16) {
      start_product_over_rows<Bf16>(sums, of_group, column, weight, column);
    }
  } else {
    LeftFragment left[kSixteens];
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      left[i] = left_of(from_row(gradient, kWarpTile * warp_tile), 0, 16 * i);
    }
    add_product_over_rows(sums, left, weight);
  }
}

}  // namespace adtrain::kernels::backward_pass
