#pragma once

#include "kernels/block/mlp_backward/Memory.cuh"

/// The first stage: the norm's backward pass.
namespace adtrain::kernels::mlp_backward_pass {

/// A thread's part of a tile in the first stage: a chunk of columns of two neighbouring rows. Four
/// neighbouring lanes have the same columns of 8 rows, as in the right operand of a product.
struct ThreadPlace {
  int row, column;
};
template <int Width>
__device__ ThreadPlace thread_place(int turn) {
  constexpr int kChunks = Width / kChunk, kWarpRows = Memory<Width>::kRowsAtOnce / kNormWarps;
  const LanePlace lane = lane_place();
  const int warp = norm_thread<Width>() / kWarp;
  return {Memory<Width>::kRowsAtOnce * turn + kWarpRows * warp + 8 * (lane.row / kChunks) + lane.column,
          kChunk * (lane.row % kChunks)};
}

/// Starts to copy the rows of a tile from `first` on. Rows beyond the last one are zeros, which add nothing
/// to the sums.
template <int Width, bool kDropout>
__device__ void fetch(Memory<Width>& memory, const Arguments& arguments, int64_t first,
                      uint32_t (*inner_keep)[kKeepStride]) {
  const unsigned thread = norm_thread<Width>();
  const unsigned rows = rows_from(arguments, first);
  const Bf16 *dy = arguments.dy + first * Width, *normed2 = arguments.normed2 + first * Width,
             *normed1 = arguments.normed1 + first * Width;
#pragma unroll
  for (int turn = 0; turn < Memory<Width>::kTurns; ++turn) {
    const ThreadPlace place = thread_place<Width>(turn);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const unsigned row = place.row + i, element = row * Width + place.column;
      uint4 &to_dy = memory.dy[turn][i][thread], &to_normed2 = memory.normed2[turn][i][thread],
            &to_normed1 = memory.normed1[turn][i][thread];
      if (row < rows) {
        start_copy(reinterpret_cast<Bf16*>(&to_dy), dy + element);
        start_copy(reinterpret_cast<Bf16*>(&to_normed2), normed2 + element);
        start_copy(reinterpret_cast<Bf16*>(&to_normed1), normed1 + element);
        start_copy_word(&memory.inverse2[turn][i][thread], arguments.inverse2 + first + row);
        if (kDropout) {
          start_copy_word(&memory.output_keep[turn][i][thread],
                          arguments.output_keep + first * (Width / 32) + element / 32);
        }
      } else {
        to_dy = to_normed2 = to_normed1 = uint4{};
        memory.inverse2[turn][i][thread] = 0.0f;
      }
    }
  }
  if (!kDropout) return;
  constexpr int kWords = Memory<Width>::kInner / 32;
  const uint32_t* words = arguments.inner_keep + first * kWords;
  uint32_t* to = &inner_keep[thread % kWords][thread / kWords];
#pragma unroll
  for (unsigned i = 0; i < kTileRows * kWords; i += kNormThreads) {
    if (thread + i < rows * kWords) start_copy_word(to + i / kWords, words + thread + i);
  }
}

/// Eight neighbouring columns.
struct Chunk {
  uint32_t pair[4];
};
__device__ inline Chunk chunk_of(const uint4& bits) {
  return {{bits.x, bits.y, bits.z, bits.w}};
}
__device__ inline uint4 bits_of(const Chunk& chunk) {
  return {chunk.pair[0], chunk.pair[1], chunk.pair[2], chunk.pair[3]};
}
__device__ inline Chunk load_chunk(const Bf16* from) {
  return chunk_of(*reinterpret_cast<const uint4*>(from));
}
__device__ inline void store_chunk(Bf16* to, const Chunk& chunk) {
  *reinterpret_cast<uint4*>(to) = bits_of(chunk);
}

/// The sum over the lanes that have chunks of the same row.
template <int Width>
__device__ float row_sum(float value) {
#pragma unroll
  for (int apart = 4; apart < Width / 2; apart *= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
  return value;
}

/// Adds the chunks of the warp's rows. The product's right operand is the chunks' pairs of columns, as a
/// matrix (rows, chunks). Its left operand selects the even and the odd columns of the pairs. The sums are in
/// rows 0 … 7 of `sums` (`second` false) or 8 … 15: column n of row c, or of row 8 + c, is column c of chunk
/// n.
__device__ inline void add_over_rows(Sums& sums, bool second, const Chunk (&chunks)[kThreadRows]) {
  const int lane = lane_number();
  const uint32_t odd_or_even = lane / 4 % 2 == 1 ? kOne << 16 : kOne;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t pick = lane / 8 == i ? odd_or_even : 0;
    const LeftFragment picks = second ? LeftFragment{{0, pick, 0, pick}} : LeftFragment{{pick, 0, pick, 0}};
    multiply_add(sums, picks, chunks[0].pair[i], chunks[1].pair[i]);
  }
}

/// The value where bit `column` of `keep` is set, else 0.
__device__ inline float kept(uint32_t keep, int column, float value) {
  return (keep >> column & 1) != 0 ? value : 0.0f;
}

/// From dy, normed1 and normed2 of a turn's rows, whose copies have arrived, to x1, df and du2.
template <int Width, bool kDropout>
__device__ void norm_stage(Memory<Width>& memory, int turn, float scale, Tile<Width> x1, Tile<Width> df,
                           Tile<Width> du2) {
  const int thread = norm_thread<Width>();
  const ThreadPlace place = thread_place<Width>(turn);
  const Chunk norm2_weight = load_chunk(memory.norm2_weight + place.column);
  const Chunk norm1_weight = load_chunk(memory.norm1_weight + place.column);
  const Chunk norm1_bias = load_chunk(memory.norm1_bias + place.column);

  Chunk dy[kThreadRows], dy_normed2[kThreadRows], dropped[kThreadRows];
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const int row = place.row + i;
    dy[i] = chunk_of(memory.dy[turn][i][thread]);
    const Chunk normed2 = chunk_of(memory.normed2[turn][i][thread]);
    const Chunk normed1 = chunk_of(memory.normed1[turn][i][thread]);
    const float inverse2 = memory.inverse2[turn][i][thread];

    float2 g[4], normed[4];
    float g_sum = 0.0f, g_normed_sum = 0.0f;
    Chunk x1_chunk;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 dy_pair = unpacked(dy[i].pair[pair]), weight = unpacked(norm2_weight.pair[pair]);
      normed[pair] = unpacked(normed2.pair[pair]);
      g[pair] = {dy_pair.x * weight.x, dy_pair.y * weight.y};
      g_sum += g[pair].x + g[pair].y;
      g_normed_sum = fmaf(g[pair].x, normed[pair].x, fmaf(g[pair].y, normed[pair].y, g_normed_sum));
      dy_normed2[i].pair[pair] = multiplied(dy[i].pair[pair], normed2.pair[pair]);
      x1_chunk.pair[pair] =
          multiplied_plus(normed1.pair[pair], norm1_weight.pair[pair], norm1_bias.pair[pair]);
    }
    store_chunk(x1.at(row, place.column), x1_chunk);

    const float shift = row_sum<Width>(g_sum) * (-1.0f / Width) * inverse2;
    const float slope = row_sum<Width>(g_normed_sum) * (-1.0f / Width) * inverse2;
    const uint32_t keep = kDropout ? memory.output_keep[turn][i][thread] >> place.column % 32 : 0;
    Chunk du2_chunk;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 du = {fmaf(g[pair].x, inverse2, fmaf(normed[pair].x, slope, shift)),
                         fmaf(g[pair].y, inverse2, fmaf(normed[pair].y, slope, shift))};
      du2_chunk.pair[pair] = packed(du.x, du.y);
      dropped[i].pair[pair] =
          kDropout ? packed(kept(keep, 2 * pair, du.x * scale), kept(keep, 2 * pair + 1, du.y * scale))
                   : du2_chunk.pair[pair];
    }
    store_chunk(du2.at(row, place.column), du2_chunk);
    store_chunk(df.at(row, place.column), dropped[i]);
  }
  float4& norm2_sums = memory.norm2_sums[thread];
  Sums norm2 = {{norm2_sums.x, norm2_sums.y, norm2_sums.z, norm2_sums.w}};
  add_over_rows(norm2, false, dy_normed2);
  add_over_rows(norm2, true, dy);
  norm2_sums = {norm2.value[0], norm2.value[1], norm2.value[2], norm2.value[3]};
  float2& linear2_bias_sums = memory.linear2_bias_sums[thread];
  Sums linear2_bias = {{linear2_bias_sums.x, linear2_bias_sums.y, 0.0f, 0.0f}};
  add_over_rows(linear2_bias, false, dropped);
  linear2_bias_sums = {linear2_bias.value[0], linear2_bias.value[1]};
}

}  // namespace adtrain::kernels::mlp_backward_pass
