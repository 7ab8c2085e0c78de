#pragma once

#include <cmath>

#include "evaluation/gpu/SplitProduct.cuh"

/// Causal attention of tiles of 16 tokens. Keys and values lie in the GPU's memory as operands B, each number
/// as the sum of two:
///
///     keys    head, group of 8 tokens, group of 8 numbers of the head, lane: the words of numbers 2i, 2i + 1
///     of
///             token g, upper and lower half
///     values  head, group of 16 tokens, group of 8 numbers of the head, lane: four words, as PackedLinear's,
///     the
///             tokens being the inputs and the numbers the outputs
namespace adtrain::gpu {

constexpr float kNothingRead = -INFINITY;

template <int kHeadSize>
struct AttentionShape {
  static constexpr int kSteps = kHeadSize <= 16 ? 1 : kHeadSize / 16;  ///< of 16 numbers
  static constexpr int kGroups = kHeadSize / 8;                        ///< of 8 numbers
};

/// Turns 8 rows of 8 numbers of 16 bits, a lane's word being two columns of one row, into their transpose.
__device__ inline uint32_t transposed(uint32_t word) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(word));
  return result;
}

/// The memory of one trial and one layer.
template <int kHeadSize>
struct KeysAndValues {
  using Shape = AttentionShape<kHeadSize>;
  uint2* keys;
  uint4* values;
  int most_tokens;  ///< a multiple of 16

  __device__ uint2* key(int head, int tokens, int group) const {
    return keys + ((head * (most_tokens / 8) + tokens) * Shape::kGroups + group) * 32;
  }
  __device__ uint4* value(int head, int chunk, int group) const {
    return values + ((head * (most_tokens / 16) + chunk) * Shape::kGroups + group) * 32;
  }

  /// Numbers `at` and `at` + 1 of a head's key.
  __device__ void put_key(int head, int token, int at, float2 numbers) const {
    const SplitPair pair = split(numbers.x, numbers.y);
    key(head, token / 8, at / 8)[token % 8 * 4 + at % 8 / 2] = {pair.upper, pair.lower};
  }
  __device__ void put_value(int head, int token, int at, float number) const {
    const int lane = at % 8 * 4 + token % 8 / 2, half = token % 16 / 8;
    auto* numbers = reinterpret_cast<__nv_bfloat16*>(value(head, token / 16, at / 8) + lane);
    const __nv_bfloat16 upper = __float2bfloat16_rn(number);
    numbers[2 * half + token % 2] = upper;
    numbers[4 + 2 * half + token % 2] = __float2bfloat16_rn(number - __bfloat162float(upper));
  }
  /// 8 numbers from `at` on of the values of 16 tokens, the first of which is a multiple of 16. For one warp.
  __device__ void put_values(const Lane& lane, int head, int first_token, int at,
                             const PairOfRows& numbers) const {
    const SplitPair first = split(numbers.rows[0].x, numbers.rows[0].y);
    const SplitPair second = split(numbers.rows[1].x, numbers.rows[1].y);
    value(head, first_token / 16, at / 8)[lane.number] = {transposed(first.upper), transposed(second.upper),
                                                          transposed(first.lower), transposed(second.lower)};
  }
};

/// What one warp has read for one head: of each row a weighted sum of values, and the highest score and the
/// sum of weights that go with it. A lane holds rows `row` and `row` + 8.
template <int kHeadSize>
struct PartlyRead {
  float sums[kHeadSize / 8][4] = {};
  float highest[2] = {kNothingRead, kNothingRead};  ///< in powers of two
  float weight[2] = {};
};

__device__ inline float highest_of_row(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0U, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0U, value, 2));
}
__device__ inline float sum_of_row(float value) {
  value += __shfl_xor_sync(~0U, value, 1);
  return value + __shfl_xor_sync(~0U, value, 2);
}

/// A head's keys and values of 16 tokens.
template <int kHeadSize>
struct Chunk {
  using Shape = AttentionShape<kHeadSize>;
  uint2 keys[2][Shape::kGroups];
  uint4 values[Shape::kGroups];

  __device__ void fetch(const KeysAndValues<kHeadSize>& memory, int head, int chunk, int lane) {
#pragma unroll
    for (int group = 0; group < Shape::kGroups; ++group) {
      for (int side = 0; side < 2; ++side)
        keys[side][group] = memory.key(head, 2 * chunk + side, group)[lane];
      values[group] = memory.value(head, chunk, group)[lane];
    }
  }
  /// Operand B of a step of 16 numbers.
  __device__ uint4 key(int side, int step) const {
    const uint2 first = keys[side][2 * step];
    const uint2 second = kHeadSize == 8 ? uint2{0, 0} : keys[side][(2 * step + 1) % Shape::kGroups];
    return {first.x, second.x, first.y, second.y};
  }
};

/// Turns one row's scores of a chunk into weights, and what was read before to the new highest score.
template <int kHeadSize>
__device__ void weigh(PartlyRead<kHeadSize>& read, int part, float (&scores)[2][4]) {
  float* left = &scores[0][2 * part];
  float* right = &scores[1][2 * part];
  const float here = highest_of_row(fmaxf(fmaxf(left[0], left[1]), fmaxf(right[0], right[1])));
  if (__any_sync(~0U, here > read.highest[part])) {
    const float highest = fmaxf(read.highest[part], here);
    const float keep = highest == kNothingRead ? 1 : exp2f(read.highest[part] - highest);
    read.highest[part] = highest;
    read.weight[part] *= keep;
    for (auto& group : read.sums) {
      group[2 * part] *= keep;
      group[2 * part + 1] *= keep;
    }
  }
  const float base = read.highest[part] == kNothingRead ? 0 : read.highest[part];
  for (int index = 0; index < 2; ++index) {
    left[index] = exp2f(left[index] - base);
    right[index] = exp2f(right[index] - base);
  }
  read.weight[part] += left[0] + left[1] + right[0] + right[1];
}

/// Chunks `first`, `first` + `stride`, … of 16 tokens, as far as the tile's last token reads; its first row
/// is token `first_token`. For one warp, which fetches a chunk ahead.
template <int kHeadSize>
__device__ PartlyRead<kHeadSize> read_head(const SplitTile& queries, const KeysAndValues<kHeadSize>& memory,
                                           int head, int first_token, int last_token, int first, int stride) {
  using Shape = AttentionShape<kHeadSize>;
  const Lane lane;
  PartlyRead<kHeadSize> read;
  if (16 * first > last_token) return read;
  Chunk<kHeadSize> next;
  next.fetch(memory, head, first, lane.number);
  SplitOperand query[Shape::kSteps];
  for (int step = 0; step < Shape::kSteps; ++step) {
    query[step] = queries.operand(lane, head * kHeadSize + 16 * step);
    if (kHeadSize == 8) {  // columns 8 … 15 are another head's
      query[step].set(2, {0, 0});
      query[step].set(3, {0, 0});
    }
  }
  // exp(x) = 2^(x log2 e)
  const float scale = 1.4426950408889634F / sqrtf(static_cast<float>(kHeadSize));
  for (int chunk = first; 16 * chunk <= last_token; chunk += stride) {
    const Chunk<kHeadSize> now = next;
    if (16 * (chunk + stride) <= last_token) next.fetch(memory, head, chunk + stride, lane.number);
    const bool all_seen = 16 * chunk + 15 <= first_token;
    float scores[2][4];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      SplitSum sum;
      for (int step = 0; step < Shape::kSteps; ++step) sum.add(query[step], now.key(side, step));
      for (int index = 0; index < 4; ++index) scores[side][index] = sum[index] * scale;
      if (all_seen) continue;
      for (int index = 0; index < 4; ++index) {
        const int token = 16 * chunk + 8 * side + lane.column + index % 2;
        if (token > first_token + lane.row + index / 2 * 8) scores[side][index] = kNothingRead;
      }
    }
    weigh(read, 0, scores);
    weigh(read, 1, scores);
    SplitOperand weights;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      weights.set(2 * side, split(scores[side][0], scores[side][1]));
      weights.set(2 * side + 1, split(scores[side][2], scores[side][3]));
    }
#pragma unroll
    for (int group = 0; group < Shape::kGroups; ++group) {
      const uint4& value = now.values[group];
      multiply_add(read.sums[group], weights.lower, value.x, value.y);
      multiply_add(read.sums[group], weights.upper, value.z, value.w);
      multiply_add(read.sums[group], weights.upper, value.x, value.y);
    }
  }
  for (float& weight : read.weight) weight = sum_of_row(weight);
  return read;
}

/// Shared memory in which the warps that share a head put what they have read.
template <int kHeadSize>
struct PartsOfHeads {
  static constexpr int kFloats = kTileRows * (kHeadSize + 2);  ///< a warp's
  float* memory;

  __device__ float* part(int warp) const { return memory + warp * kFloats; }
  __device__ void put(int warp, const PartlyRead<kHeadSize>& read) const {
    const Lane lane;
    float* part = this->part(warp);
    for (int side = 0; side < 2; ++side) {
      const int row = lane.row + 8 * side;
      for (int group = 0; group < kHeadSize / 8; ++group) {
        for (int index = 0; index < 2; ++index) {
          part[row * kHeadSize + 8 * group + lane.column + index] = read.sums[group][2 * side + index];
        }
      }
      if (lane.column == 0) {
        part[kTileRows * kHeadSize + row] = read.highest[side];
        part[kTileRows * (kHeadSize + 1) + row] = read.weight[side];
      }
    }
  }
  /// Number `at` of what row `row` has read, from `count` warps' parts.
  __device__ float merged(int first_warp, int count, int row, int at) const {
    float highest = kNothingRead, sum = 0, weight = 0;
    for (int i = 0; i < count; ++i) {
      highest = fmaxf(highest, part(first_warp + i)[kTileRows * kHeadSize + row]);
    }
    for (int i = 0; i < count; ++i) {
      const float* one = part(first_warp + i);
      const float factor = exp2f(one[kTileRows * kHeadSize + row] - highest);
      sum += factor * one[row * kHeadSize + at];
      weight += factor * one[kTileRows * (kHeadSize + 1) + row];
    }
    return sum / weight;
  }
};

/// A tile of tokens that read.
struct ReadingTile {
  SplitTile queries, result;
  int first_token, last_token;
};

/// What each token of `count` tiles reads, all heads side by side; `tile_of(i)` says where tile i is. For all
/// threads: each head of each tile is one warp's or shared by several.
template <int kHeadSize, class TileOf>
__device__ void attend(TileOf tile_of, int count, const KeysAndValues<kHeadSize>& memory, int heads,
                       const PartsOfHeads<kHeadSize>& parts) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int readings = count * heads;
  const int sharing = readings < kWarps ? kWarps / readings : 1;  // warps of one reading
  const int at_once = kWarps / sharing;
  for (int first = 0; first < readings; first += at_once) {
    const int reading = first + warp / sharing;
    if (warp < at_once * sharing && reading < readings) {
      const ReadingTile tile = tile_of(reading / heads);
      parts.put(warp, read_head<kHeadSize>(tile.queries, memory, reading % heads, tile.first_token,
                                           tile.last_token, warp % sharing, sharing));
    }
    __syncthreads();
    constexpr int kRowsOfWarp = 32 / kHeadSize;
    for (int i = warp * kRowsOfWarp + lane / kHeadSize; i < at_once * kTileRows; i += kWarps * kRowsOfWarp) {
      const int local = i / kTileRows, row = i % kTileRows, merged = first + local, at = lane % kHeadSize;
      if (merged >= readings) break;
      tile_of(merged / heads)
          .result.put(row, merged % heads * kHeadSize + at, parts.merged(local * sharing, sharing, row, at));
    }
    __syncthreads();
  }
}

}  // namespace adtrain::gpu
