#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/BlockShape.h"
#include "kernels/attention/resident/forward/DropoutWords.cuh"
#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/Reach.cuh"
#include "kernels/attention/resident/forward/Sequence.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// A warp tile's attention, after the projection of its queries.
namespace adtrain::kernels::forward_pass {

/// Rounds projected queries of whole heads, rotated and scaled so that their products with keys are exponents
/// of 2.
template <int HeadSize, int Steps, class Rotary>
__device__ void as_queries(LeftFragment (&queries)[Steps], Sums (&projected)[2 * Steps],
                           const Rotary& rotary) {
  const float scale = kLog2E / std::sqrt(static_cast<float>(HeadSize));
  rotary.rotate(projected);
#pragma unroll
  for (Sums& sums : projected) {
#pragma unroll
    for (float& value : sums.value) value *= scale;
  }
#pragma unroll
  for (int i = 0; i < Steps; ++i) queries[i] = as_left(projected[2 * i], projected[2 * i + 1]);
}

/// A warp tile's attention in one head, or in two neighbouring heads of 8, so that 16 columns fill a
/// fragment.
template <class Block, int Width, int HeadSize, bool Dropout, bool Streams>
class HeadsRead {
 public:
  static constexpr int kColumns = std::max(HeadSize, 16);
  static constexpr int kHeads = kColumns / HeadSize;
  static constexpr int kSteps = kColumns / 16;
  /// Tiles of keys read at once: one has enough independent products where there are several heads or steps.
  static constexpr int kAtOnce = kHeads * kSteps == 1 ? 2 : 1;

  __device__ HeadsRead(const Sequence<Block, Width>& sequence, const WarpTile& warp_tile, int column)
      : sequence_(sequence),
        warp_tile_(warp_tile),
        column_(column),
        lane_(lane_anew()),
        reach_(sequence.job.shape, warp_tile, lane_) {
#pragma unroll
    for (Sums& sums : attention_output_) sums = no_sums();
#pragma unroll
    for (Sums& sums : total_) sums = no_sums();
  }

  /// Computes the heads' queries from projections in memory.
  template <class Own>
  __device__ void compute_queries(const Own& own) {
    Sums queries[kColumns / 8];
    own.load(queries, 0, column_, lane_);
    LeftFragment query[kSteps];
    as_queries<HeadSize>(query, queries, rotary());
    take_queries(query, own);
  }

  /// Takes the heads' queries from as_queries(). own: the source of the warp tile's keys and values, its
  /// Features or projections in memory.
  template <class Own>
  __device__ void take_queries(const LeftFragment (&query)[kSteps], const Own& own) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) query_[i] = query[i];
    if (has_own_keys()) score_own(own);
    start_scores();
  }

  /// Reads all keys within reach; own as for take_queries().
  template <class Own>
  __device__ void attend(const Own& own) {
    const int first_token = sequence_.first_token();
    // An even tile; there is no padding from here on.
    int tile = (first_token + 2 * kWarpTile - 1) / (2 * kWarpTile) * 2;
    if (first_token > 0) read_after_padding(first_token, min(tile, reach_.tiles()));
    Bits words(sequence_.job, warp_tile_, head_number(0), min(tile, reach_.whole) / 2);
    Scores scores[kAtOnce];
    score_ahead<kAtOnce>(scores, tile);
#pragma unroll 1
    for (; tile + 2 <= reach_.whole; tile += 2) {
      const Words now = words.next(tile + 2 < reach_.tiles());
      if constexpr (kAtOnce == 2) {
        read_tiles<kAtOnce>(scores, tile, now, 0, tile + 2);
      } else {
        read_tiles<kAtOnce>(scores, tile, now, 0, tile + 1);
        read_tiles<kAtOnce>(scores, tile + 1, now, 2, tile + 2);
      }
    }
    Words last = words.next(false);
    if (kAtOnce == 2 && reach_.partly && tile < reach_.whole) {
      uint32_t keys[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) keys[half] = reach_.keys[half] << kWarpTile | 0xffff;
      read_tiles<2, true>(scores, tile, last, 0, tile, keys);
      take_second(last);
    } else {
      if (tile < reach_.whole) read_tiles<1>(scores, tile, last, 0, tile + 1);
      if (reach_.whole % 2 != 0) take_second(last);
      if (reach_.partly && tile <= reach_.whole) {
        read_tiles<1, true>(scores, reach_.whole, last, 0, reach_.whole, reach_.keys);
      }
    }
    if (has_own_keys()) read_own(own, last);
  }

  /// Writes lse and the attention output, which it also returns.
  __device__ void finish(LeftFragment (&output)[kSteps]) {
    const LanePlace place = lane_place(lane_);
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      float* lse = sequence_.job.lse() + warp_tile_.place(head_number(head));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float total = total_[head].value[2 * half];
        if (warp_tile_.comes_out(half) && place.column == 0) {
          lse[8 * half] = __log2f(total) - start_[head].value[2 * half];
        }
        const float share = __fdividef(Dropout ? sequence_.job.attention_scale() : 1.0f, total);
#pragma unroll
        for (int eight = head; eight < kColumns / 8; eight += kHeads) {
          attention_output_[eight].value[2 * half] *= share;
          attention_output_[eight].value[2 * half + 1] *= share;
        }
      }
    }
    const int row = Block::template row_of_output<Width>(sequence_.job);
    Bf16* to = Block::template output_of<Width>(sequence_, warp_tile_) + column_ + place.column;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      output[step] = as_left(attention_output_[2 * step], attention_output_[2 * step + 1]);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        uint32_t* at = reinterpret_cast<uint32_t*>(to + part % 2 * 8 * row + 16 * step + part / 2 * 8);
        if (warp_tile_.comes_out(part % 2)) *at = output[step].part[part];
      }
    }
  }

 private:
  using Rotary = typename Block::template Rotary<HeadSize>;
  using Bits = AttentionWords<kHeads, Dropout>;
  using Words = typename Bits::Words;
  /// The scores of 16 keys, minus m: {keys 0-7, keys 8-15} for each head.
  struct Scores {
    Sums of[kHeads][2];
  };

  __device__ Rotary rotary() const {
    return {sequence_.job, kWarpTile * warp_tile_.number, lane_};
  }

  /// The number of head `head` of these heads among the heads of all sequences.
  __device__ int head_number(int head) const {
    return warp_tile_.sequence * (Width / HeadSize) + column_ / HeadSize + head;
  }

  /// In a second stream each token reads itself, not the first stream's token at its position.
  __device__ bool has_own_keys() const {
    return Streams && warp_tile_.second;
  }

  /// Projects the warp tile's own x to the heads' columns in a third of in_proj: keys or values.
  __device__ void project_own(Sums (&sums)[kColumns / 8], int third, const Features<Width>& x) const {
    const Memory<Block, Width>& memory = sequence_.memory;
    const int out = third * Width + column_;
#pragma unroll
    for (int eight = 0; eight < kColumns / 8; ++eight) {
      sums[eight] = sums_from(memory.in_proj_bias + out + 8 * eight + lane_place(lane_).column);
    }
#pragma unroll
    for (int step = 0; step < Width / 16; ++step) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        multiply_add(sums[2 * i], sums[2 * i + 1], x.step[step],
                     right_of_transposed(memory.in_proj, out + 16 * i, 16 * step, lane_));
      }
    }
  }

  /// The same where the projections are already in memory.
  template <class Own>
  __device__ void project_own(Sums (&sums)[kColumns / 8], int third, const Own& own) const {
    own.load(sums, third, column_, lane_);
  }

  template <class Own>
  __device__ void score_own(const Own& own) {
    Sums keys[kColumns / 8];
    project_own(keys, 1, own);
    rotary().rotate(keys);
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = 0.0f;
#pragma unroll
        for (int eight = head; eight < kColumns / 8; eight += kHeads) {
          const float* value = keys[eight].value + 2 * half;
          const float2 key = unpacked(packed(value[0], value[1]));
          const float2 query = unpacked(query_[eight / 2].part[2 * (eight % 2) + half]);
          sum = fmaf(query.x, key.x, fmaf(query.y, key.y, sum));
        }
        own_score_[head][half] = quad_sum(sum);
      }
    }
  }

  /// `words`: the dropout words of the tile at the warp tile's position.
  template <class Own>
  __device__ void read_own(const Own& own, const Words& words) {
    Sums values[kColumns / 8];
    project_own(values, 2, own);
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float weight = exp2_of(own_score_[head][half] + start_[head].value[2 * half]);
        total_[head].value[2 * half] += weight;
        if (Dropout && (words.of[head][half] >> (lane_place(lane_).row + 8 * half) & 1) == 0) weight = 0.0f;
#pragma unroll
        for (int eight = head; eight < kColumns / 8; eight += kHeads) {
          const float* value = values[eight].value + 2 * half;
          float* attention_output = attention_output_[eight].value + 2 * half;
          attention_output[0] = fmaf(weight, value[0], attention_output[0]);
          attention_output[1] = fmaf(weight, value[1], attention_output[1]);
        }
      }
    }
  }

  /// Scores start from −m, where m is a row's greatest score. Where no score can overflow exp2, m is 0.
  __device__ void start_scores() {
    constexpr float kSafe = 60.0f;
    bool safe = true;
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      start_[head] = no_sums();
      float squares[2] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int eight = head; eight < kColumns / 8; eight += kHeads) {
          const float2 value = unpacked(query_[eight / 2].part[2 * (eight % 2) + half]);
          squares[half] = fmaf(value.x, value.x, fmaf(value.y, value.y, squares[half]));
        }
      }
      // By the Cauchy-Schwarz inequality; each lane takes the greater of its two rows.
      const float query = quad_sum(fmaxf(squares[0], squares[1]));
      safe = safe && query * sequence_.longest()[column_ / HeadSize + head] <= kSafe * kSafe;
      if (has_own_keys()) safe = safe && fmaxf(own_score_[head][0], own_score_[head][1]) <= kSafe;
    }
    if (!__all_sync(kAllLanes, safe)) start_from_greatest();
  }

  __device__ void start_from_greatest() {
    float greatest[kHeads][2];
#pragma unroll
    for (int i = 0; i < 2 * kHeads; ++i) {
      greatest[i / 2][i % 2] = has_own_keys() ? own_score_[i / 2][i % 2] : -INFINITY;
    }
#pragma unroll 1
    for (int tile = sequence_.first_token() / kWarpTile; tile < reach_.tiles(); ++tile) {
      Scores scores;
      score(scores, tile);
      uint32_t keys[2];
      find_keys(keys, tile, sequence_.first_token());
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int half = i / 2 % 2, key = i / 4 * 8 + lane_place(lane_).column + i % 2;
          if ((keys[half] >> key & 1) != 0) {
            greatest[head][half] = fmaxf(greatest[head][half], scores.of[head][i / 4].value[i % 4]);
          }
        }
      }
    }
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
#pragma unroll
      for (int i = 0; i < 4; ++i) start_[head].value[i] = -quad_max(greatest[head][i / 2]);
    }
  }

  /// Sets the scores of 16 keys.
  __device__ void score(Scores& scores, int tile) const {
    RightFragments right[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      right[step] = right_of_transposed(sequence_.memory.keys, kWarpTile * tile, column_ + 16 * step, lane_);
    }
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      Sums(&of_head)[2] = scores.of[head];
      of_head[0] = of_head[1] = start_[head];
      if (kHeads == 2) {
        multiply_add_8(of_head[0], query_[0], head, right[0].part[head]);
        multiply_add_8(of_head[1], query_[0], head, right[0].part[head + 2]);
      } else {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          multiply_add(of_head[0], of_head[1], query_[step], right[step]);
        }
      }
    }
  }

  /// Sets the scores of neighbouring tiles that will be read next, if they exist: else of any.
  template <int Tiles>
  __device__ void score_ahead(Scores* scores, int first) const {
    constexpr int kLast = kMostTokens / kWarpTile - Tiles;
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) score(scores[tile], min(first, kLast) + tile);
  }

  /// Which of a tile's keys the lane's two rows read. Padding reads itself, so that it has a key.
  __device__ void find_keys(uint32_t (&keys)[2], int tile, int first_token) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      keys[half] = tile < reach_.whole ? 0xffff : reach_.keys[half];
      if (tile == first_token / kWarpTile) keys[half] &= ~0u << first_token % kWarpTile;
      if (keys[half] == 0 && !has_own_keys()) keys[half] = (reach_.keys[half] + 1) >> 1;
    }
  }

  /// Reads the keys from the tile in which padding ends up to `end`.
  __device__ void read_after_padding(int first_token, int end) {
    int tile = first_token / kWarpTile;
    if (tile >= end) return;
    Words words = Bits(sequence_.job, warp_tile_, head_number(0), tile / 2).next(false);
    if (tile % 2 != 0) take_second(words);
#pragma unroll 1
    for (; tile < end; ++tile) {
      uint32_t keys[2];
      find_keys(keys, tile, first_token);
      Scores scores;
      score(scores, tile);
      read_tiles<1, true>(&scores, tile, words, 0, tile, keys);
      take_second(words);
    }
  }

  /// From the words of a pair of tiles, takes those of its second tile.
  __device__ static void take_second(Words& words) {
#pragma unroll
    for (auto& of_head : words.of) {
      of_head[0] >>= kWarpTile;
      of_head[1] >>= kWarpTile;
    }
  }

  /// Adds `Tiles` · 16 keys, whose scores these are: their weights, and the weighted values. The keys'
  /// dropout bits begin at 8 · `eight`. Then the scores are those of the tiles from `next` on: their products
  /// are under way while the values are weighted. Partly: the lane's two rows read only the keys whose bits
  /// in `keys` are set, and no scores are computed.
  template <int Tiles, bool Partly = false>
  __device__ void read_tiles(Scores* scores, int first, const Words& words, int eight, int next,
                             const uint32_t (&keys)[2] = {}) {
    constexpr uint32_t kOnes = 0x3f803f80u;
    LeftFragment weights[Tiles][kHeads];
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        Sums(&of_head)[2] = scores[tile].of[head];
#pragma unroll
        for (Sums& sums : of_head) {
#pragma unroll
          for (float& value : sums.value) value = exp2_of(value);
        }
        weights[tile][head] = as_left(of_head[0], of_head[1]);
      }
    }
    if constexpr (!Partly) score_ahead<Tiles>(scores, next);
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        LeftFragment& of_head = weights[tile][head];
        if (Partly) keep_pairs(of_head, keys, 2 * tile);
        multiply_add(total_[head], of_head, kOnes, kOnes);
        if (Dropout) keep_pairs(of_head, words.of[head], eight + 2 * tile);
      }
    }
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const RightFragments right =
            right_of(sequence_.memory.values, kWarpTile * (first + tile), column_ + 16 * step, lane_);
        if (kHeads == 2) {
          multiply_add(attention_output_[0], weights[tile][0], right.part[0], right.part[1]);
          multiply_add(attention_output_[1], weights[tile][1], right.part[2], right.part[3]);
        } else {
          multiply_add(attention_output_[2 * step], attention_output_[2 * step + 1], weights[tile][0], right);
        }
      }
    }
  }

  /// Sets weights to 0 whose bits, from 8 · eight on, are not set in the words of the lane's two rows.
  __device__ void keep_pairs(LeftFragment& weights, const uint32_t (&words)[2], int eight) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const KeptPairs pairs(words[half], lane_);
      weights.part[half] = pairs.kept(weights.part[half], eight);
      weights.part[half + 2] = pairs.kept(weights.part[half + 2], eight + 1);
    }
  }

  const Sequence<Block, Width>& sequence_;
  const WarpTile& warp_tile_;
  int column_;  ///< of the first head
  unsigned lane_;
  Reach reach_;
  LeftFragment query_[kSteps];
  float own_score_[kHeads][2];  ///< of the lane's two rows
  Sums start_[kHeads];          ///< −m
  Sums total_[kHeads];          ///< sums of weights, the same in all columns
  Sums attention_output_[kColumns / 8];
};

}  // namespace adtrain::kernels::forward_pass
