#pragma once

#include "kernels/attention/resident/backward/Fragments.cuh"
#include "kernels/attention/resident/backward/Round.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// Pairs of warp tiles, 16 queries with 16 keys, in the backward pass of attention. Whole-block kernels,
/// which compute queries, keys and values themselves, and resident-KV attention share this.
namespace adtrain::kernels::backward_pass {

/// The tiles of a round in shared memory. Heads are columns of the tiles, and tokens are rows.
template <int Width>
struct RoundTiles {
  Tile<Width> query;  ///< with factor log2 e / √head size, so that scores are exponents of 2
  Tile<Width> d_attention_output;
  Tile<Width> key, value;
  const float *minus_log, *minus_delta;  ///< (heads, 256); −∞ for queries that do not exist
};

/// Computes a round's pairs of warp tiles. Padded: sequences may begin with padding. Borrows its arguments.
/// All threads of a warp must call together.
template <int Width, int HeadSize, bool Dropout, bool Streams, bool Padded>
class WarpTilePairs {
  static constexpr int kEights = HeadSize / 8;

 public:
  __device__ WarpTilePairs(const BlockShape& shape, const RoundTiles<Width>& tiles)
      : shape_(shape),
        tiles_(tiles),
        place_(lane_place()),
        tokens_(shape.tokens),
        warp_tiles_((tokens_ + kWarpTile - 1) / kWarpTile) {}

  /// Begins a round. `keep`: the dropout words of the first of the tiles' heads at the round's first row;
  /// null without dropout. The round is copied: through a reference it would be read from memory.
  __device__ void begin(const Round& round, const uint32_t* keep) {
    round_ = round;
    keep_ = keep;
  }

  /// One head of a warp tile of keys, and the sums of its gradients.
  struct Keys {
    int head;
    int rotation;     ///< moves the bit of the lane's first key to a byte's highest bit
    int earliest[2];  ///< the first query that reads the lane's keys
    HeadRows<HeadSize> key, value;
    Sums dkey[kEights], dvalue[kEights];
  };
  /// Loads the keys and clears the sums. Filled in place, because the compiler would copy a return value.
  __device__ void start(Keys& keys, int warp_tile, int head) const {
    const int column = HeadSize * head, token = kWarpTile * warp_tile + place_.row;
    keys.head = head;
    keys.rotation = 7 - token % 32;
    const bool partly_padding = kWarpTile * warp_tile < first_token();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = token + 8 * half;
      keys.earliest[half] = shape_.causal ? key + of_queries() : 0;
      if (partly_padding && key < first_token()) keys.earliest[half] = kMostTokens;
    }
    keys.key = head_rows<HeadSize>(from_row(tiles_.key, kWarpTile * warp_tile), column);
    keys.value = head_rows<HeadSize>(from_row(tiles_.value, kWarpTile * warp_tile), column);
#pragma unroll
    for (int i = 0; i < kEights; ++i) keys.dkey[i] = keys.dvalue[i] = no_sums();
  }

  /// Adds all queries that read the keys.
  __device__ void add_queries(Keys& keys, int warp_tile) const {
    // The edges are the first warp tile and an incomplete last one. Where some keys are padding, all are
    // edges.
    const bool partly_padding = kWarpTile * warp_tile < first_token();
    const int first = shape_.causal ? max(warp_tile, round_.first_output) : round_.first_output,
              whole = partly_padding ? first + 1 : tokens_ / kWarpTile;
    const uint32_t* const words = words_of(keys.head, warp_tile / 2);
#pragma unroll 1
    for (int edge = first; edge < warp_tiles_; edge = max(edge + 1, whole)) {
      add_warp_tiles<1, true>(keys, edge, {query_words_of_edge(words, edge)});
    }
    if (first + 1 < whole) {
      const uint32_t* words_now = words + kWarpTile * (first + 1) - round_.skipped + place_.column;
      int queries = first + 1;
#pragma unroll 1
      for (; queries + 2 <= whole; queries += 2) {
        const QueryWords both[2] = {query_words(words_now), query_words(words_now + kWarpTile)};
        words_now += 2 * kWarpTile;
        add_warp_tiles<2, false>(keys, queries, both);
      }
      if (queries < whole) add_warp_tiles<1, false>(keys, queries, {query_words(words_now)});
    }
  }

  /// The dropout words of 32 keys for the lane's two queries.
  struct KeyWords {
    uint32_t word[2];
  };
  /// One head of a warp tile of queries, and the sums of its gradient.
  struct Queries {
    int head, column;  ///< its first column in the tiles
    int keys[2];       ///< number of keys that the lane's two queries read, from the first token on
    HeadRows<HeadSize> query, d_attention_output;
    Sums minus_log, minus_delta;
    Sums dquery[kEights];
  };
  /// Loads the queries and clears the sums.
  __device__ void start(Queries& queries, int warp_tile, int head) const {
    const int column = HeadSize * head, token = kWarpTile * warp_tile + place_.row;
    queries.head = head;
    queries.column = column;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int behind = shape_.causal ? token + 8 * half + !of_queries() : tokens_;
      queries.keys[half] = max(behind - first_token(), 0);
    }
    queries.query = head_rows<HeadSize>(from_row(tiles_.query, kWarpTile * warp_tile), column);
    queries.d_attention_output =
        head_rows<HeadSize>(from_row(tiles_.d_attention_output, kWarpTile * warp_tile), column);
    const float *logs = tiles_.minus_log + kMostTokens * head + token,
                *deltas = tiles_.minus_delta + kMostTokens * head + token;
    queries.minus_log = {{logs[0], logs[0], logs[8], logs[8]}};
    queries.minus_delta = {{deltas[0], deltas[0], deltas[8], deltas[8]}};
#pragma unroll
    for (Sums& sums : queries.dquery) sums = no_sums();
  }

  /// Adds all keys that the queries read. Returns the dropout words of the keys in the same warp tile.
  __device__ KeyWords add_keys(Queries& queries, int warp_tile) const {
    // The edges are the last warp tile and, after padding, those up to an even one.
    const int last = shape_.causal ? warp_tile : warp_tiles_ - 1, token = kWarpTile * warp_tile + place_.row;
    int keys = (first_token() + 2 * kWarpTile - 1) / (2 * kWarpTile) * 2;
    const uint32_t* const words = words_of(queries.head, min(keys, last) / 2);
    KeyPointers words_now = {{words + round_.nearest_row(token), words + round_.nearest_row(token + 8)}};
    // The data of two streams leaves less of the L2 cache to these words.
    constexpr int kAhead = Streams ? 2 : 1;
    KeyWords ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      ahead[i] = key_words(words_now);
      words_now.move_on(keys + 2 * i + 2 <= last ? shape_.rows : 0);
    }
    if (first_token() > 0) add_after_padding(queries, warp_tile, min(keys, last + 1));
#pragma unroll 1
    for (; keys + 2 <= last; keys += 2) {
      const KeyWords now = ahead[0];
#pragma unroll
      for (int i = 0; i + 1 < kAhead; ++i) ahead[i] = ahead[i + 1];
      ahead[kAhead - 1] = key_words(words_now);
      words_now.move_on(keys + 2 * kAhead + 2 <= last ? shape_.rows : 0);
      add_warp_tiles<2, false>(queries, keys, now);
    }
    if (keys < last) {
      add_warp_tiles<2, true>(queries, keys, ahead[0]);
    } else if (keys == last) {
      add_warp_tiles<1, true>(queries, last, ahead[0]);
    }
    return ahead[0];
  }

 private:
  __device__ bool of_queries() const {
    return Streams && round_.of_queries;
  }
  __device__ int first_token() const {
    return Padded ? round_.first_token : 0;
  }
  /// The dropout words of 32 keys, one for each output row.
  __device__ const uint32_t* words_of(int head, int word) const {
    return Dropout ? keep_ + (head * ((tokens_ + 31) / 32) + word) * shape_.rows : nullptr;
  }

  // A warp tile as keys: scores have keys as rows

  /// The dropout words of the lane's queries in a warp tile: {columns 0-7, columns 8-15}, two neighbours
  /// each.
  struct QueryWords {
    uint32_t word[2][2];
  };
  /// `words`: of the lane's first query in a warp tile whose tokens all have output rows.
  __device__ static QueryWords query_words(const uint32_t* words) {
    QueryWords result = {};
    if constexpr (Dropout) result = {{{words[0], words[1]}, {words[8], words[9]}}};
    return result;
  }
  /// `words`: of the first output row. For tokens without an output row, any word may be read.
  __device__ QueryWords query_words_of_edge(const uint32_t* words, int warp_tile) const {
    const int token = kWarpTile * warp_tile + place_.column;
    QueryWords result = {};
    if constexpr (Dropout) {
      result = {{{words[round_.nearest_row(token)], words[round_.nearest_row(token + 1)]},
                 {words[round_.nearest_row(token + 8)], words[round_.nearest_row(token + 9)]}}};
    }
    return result;
  }
  /// Neighbouring warp tiles of queries at once. Edge: some queries come before some of the keys.
  template <int Tiles, bool Edge>
  __device__ void add_warp_tiles(Keys& keys, int first, const QueryWords (&words)[Tiles]) const {
    const int row = kWarpTile * first, column = HeadSize * keys.head;
    const Tile<Width> query = from_row(tiles_.query, row),
                      d_attention_output = from_row(tiles_.d_attention_output, row);
    const float* const minus_log = tiles_.minus_log + kMostTokens * keys.head + place_.column + row;
    const float* const minus_delta = tiles_.minus_delta + kMostTokens * keys.head + place_.column + row;
    Sums scores[Tiles][2], dweights[Tiles][2];
    uint32_t minus_deltas[Tiles][2];
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        scores[tile][eight] = sums_from(minus_log + kWarpTile * tile + 8 * eight);
        Sums& sums = dweights[tile][eight];
        sums = sums_from(minus_delta + kWarpTile * tile + 8 * eight);
        minus_deltas[tile][eight] = packed(sums.value[0], sums.value[1]);
      }
      multiply_with_rows<HeadSize>(scores[tile], keys.key, from_row(query, kWarpTile * tile), column);
      multiply_with_rows<HeadSize>(dweights[tile], keys.value, from_row(d_attention_output, kWarpTile * tile),
                                   column);
    }

#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
      LeftFragment weights, dscores;
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const uint32_t(&word)[2] = words[tile].word[eight];
        const uint32_t mask_first = __funnelshift_l(word[0], word[0], keys.rotation);
        const uint32_t mask_second = __funnelshift_l(word[1], word[1], keys.rotation);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float weight[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            weight[i] = exp2_of(scores[tile][eight].value[2 * half + i]);
            const int token = row + kWarpTile * tile + 8 * eight + place_.column + i;
            if (Edge && token < keys.earliest[half]) weight[i] = 0.0f;
          }
          const float* const dweight = dweights[tile][eight].value + 2 * half;
          const uint32_t pair = packed(weight[0], weight[1]), dpair = packed(dweight[0], dweight[1]);
          uint32_t mask = ~0u;
          if constexpr (Dropout) {
            mask = half == 0 ? pair_mask<0>(mask_first, mask_second) : pair_mask<1>(mask_first, mask_second);
          }
          weights.part[2 * eight + half] = pair & mask;
          dscores.part[2 * eight + half] =
              multiplied(pair, (dpair & mask) | (minus_deltas[tile][eight] & ~mask));
        }
      }
      add_rows<HeadSize>(keys.dvalue, weights, from_row(d_attention_output, kWarpTile * tile), column);
      add_rows<HeadSize>(keys.dkey, dscores, from_row(query, kWarpTile * tile), column);
    }
  }

  // A warp tile as queries: scores have queries as rows

  struct KeyPointers {
    const uint32_t* of_row[2];

    __device__ void move_on(int rows) {
      of_row[0] += rows;
      of_row[1] += rows;
    }
  };
  __device__ static KeyWords key_words(const KeyPointers& words) {
    KeyWords result = {};
    if constexpr (Dropout) result = {{*words.of_row[0], *words.of_row[1]}};
    return result;
  }
  /// Adds the keys from the warp tile in which padding ends up to `end`, which is even or the end of the
  /// keys.
  __device__ void add_after_padding(Queries& queries, int warp_tile, int end) const {
    const int token = kWarpTile * warp_tile + place_.row, first_warp_tile = first_token() / kWarpTile;
    const uint32_t* const words = words_of(queries.head, first_warp_tile / 2);
    const KeyWords of_pair =
        key_words({{words + round_.nearest_row(token), words + round_.nearest_row(token + 8)}});
#pragma unroll 1
    for (int keys = first_warp_tile; keys < end; ++keys) {
      const int shift = keys % 2 * kWarpTile;
      add_warp_tiles<1, true>(queries, keys, {{of_pair.word[0] >> shift, of_pair.word[1] >> shift}});
    }
  }

  /// Neighbouring warp tiles of keys at once, whose bits are the lowest of the words. Edge: some of the keys
  /// are not read.
  template <int Tiles, bool Edge>
  __device__ void add_warp_tiles(Queries& queries, int first, const KeyWords& words) const {
    const int row = kWarpTile * first;
    const Tile<Width> key = from_row(tiles_.key, row), value = from_row(tiles_.value, row);
    Sums scores[Tiles][2], dweights[Tiles][2];
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
      scores[tile][0] = scores[tile][1] = queries.minus_log;
      dweights[tile][0] = dweights[tile][1] = queries.minus_delta;
      multiply_with_rows<HeadSize>(scores[tile], queries.query, from_row(key, kWarpTile * tile),
                                   queries.column);
      multiply_with_rows<HeadSize>(dweights[tile], queries.d_attention_output,
                                   from_row(value, kWarpTile * tile), queries.column);
    }

    LeftFragment dscores[Tiles];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t mask_first = words.word[half] << (7 - place_.column),
                     mask_second = words.word[half] << (6 - place_.column);
      const uint32_t minus_delta =
          packed(queries.minus_delta.value[2 * half], queries.minus_delta.value[2 * half]);
#pragma unroll
      for (int eight = 0; eight < 2 * Tiles; ++eight) {
        float weight[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          weight[i] = exp2_of(scores[eight / 2][eight % 2].value[2 * half + i]);
          const int behind_padding = row + 8 * eight + place_.column + i - first_token();
          if (Edge && static_cast<unsigned>(behind_padding) >= static_cast<unsigned>(queries.keys[half])) {
            weight[i] = 0.0f;
          }
        }
        const float* const dweight = dweights[eight / 2][eight % 2].value + 2 * half;
        const uint32_t dpair = packed(dweight[0], dweight[1]);
        const uint32_t mask = Dropout ? pair_mask(mask_first, mask_second, eight) : ~0u;
        dscores[eight / 2].part[2 * (eight % 2) + half] =
            multiplied(packed(weight[0], weight[1]), (dpair & mask) | (minus_delta & ~mask));
      }
    }
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
      add_rows<HeadSize>(queries.dquery, dscores[tile], from_row(key, kWarpTile * tile), queries.column);
    }
  }

  const BlockShape& shape_;
  const RoundTiles<Width> tiles_;
  const LanePlace place_;
  const int tokens_, warp_tiles_;
  Round round_;
  const uint32_t* keep_;
};

}  // namespace adtrain::kernels::backward_pass
