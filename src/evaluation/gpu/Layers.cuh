#pragma once

#include "evaluation/gpu/SplitAttention.cuh"

namespace adtrain::gpu {

__host__ __device__ constexpr int divide_up(int a, int b) {
  return (a + b - 1) / b;
}

__device__ inline int warp_number() {
  return static_cast<int>(threadIdx.x) / 32;
}
__device__ inline int lane_number() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ inline float sum_of_warp(float value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(~0U, value, distance);
  return value;
}

/// Where the parts of a block's shared memory begin, in bytes:
///
///     x        its tiles' rows, fp32 (tiles · 16, width + 8)
///     queries  its tiles, each a SplitTile (width)
///     input    two SplitTiles (width): what the next product reads
///     hidden   two SplitTiles (inner)
///     parts    what the warps of a head have read of the keys that each of them took
///
/// What lies after, from `total` on, is not the layers'.
struct LayersLayout {
  int queries, input, hidden, parts, total;

  __host__ __device__ LayersLayout(const RolloutNetwork& network, int tiles)
      : queries(tiles * kTileRows * (network.width + 8) * 4),
        input(queries + tiles * SplitTile::bytes(network.width)),
        hidden(input + kTilesAtOnce * SplitTile::bytes(network.width)),
        parts(hidden + kTilesAtOnce * SplitTile::bytes(network.inner)),
        total(parts + kWarps * kTileRows * (network.width / network.heads + 2) * 4) {}
};

/// Which tiles of a sequence a thread block has: of the new tokens, tile i is block i mod blocks's. In the
/// block they are its `slots`.
struct TilesOfBlock {
  int rank, blocks;  ///< of the trial
  int first_new = 0, length = 0;

  __device__ int tiles() const { return divide_up(length - first_new, kTileRows); }
  __device__ int slots() const { return divide_up(tiles() - rank, blocks); }
  __device__ int first_token(int slot) const { return first_new + (rank + slot * blocks) * kTileRows; }
  __device__ bool have_query() const { return (tiles() - 1) % blocks == rank; }
};

/// The network's layers, as one thread block computes its tiles. For all threads.
///
/// A layer goes in two passes: `begin` computes queries, keys and values of all tiles, of which keys and
/// values go to the GPU's memory, where other blocks read them; `finish` does the rest, two tiles at a time.
template <int kHeadSize>
class Layers {
 public:
  /// `shared`: LayersLayout's. `keys` and `values`: the trial's, of all layers.
  __device__ Layers(const RolloutNetwork& network, int most_tokens, unsigned char* shared,
                    const LayersLayout& layout, uint2* keys, uint4* values)
      : network_(network),
        most_tokens_(divide_up(most_tokens, 16) * 16),
        x_(reinterpret_cast<float*>(shared)),
        queries_{shared + layout.queries, network.width},
        input_{shared + layout.input, network.width},
        hidden_{shared + layout.hidden, network.inner},
        parts_{reinterpret_cast<float*>(shared + layout.parts)},
        keys_(keys),
        values_(values) {}

  /// From now on the work is on these tiles.
  __device__ void take(const TilesOfBlock& tiles) { tiles_ = tiles; }
  /// One row of x, (width) fp32.
  __device__ float* row_of(int slot, int row) const {
    return x_ + (slot * kTileRows + row) * (network_.width + 8);
  }
  __device__ const float* row_of_query() const {
    const int slot = tiles_.slots() - 1;
    return row_of(slot, tiles_.length - 1 - tiles_.first_token(slot));
  }

  /// Calls `work(slot, row)` for the rows of `count` slots from `first` on: a warp a row.
  template <class Work>
  __device__ static void for_rows(int first, int count, Work work) {
    for (int i = warp_number(); i < count * kTileRows; i += kWarps)
      work(first + i / kTileRows, i % kTileRows);
  }

  __device__ void begin(int layer) const {
    const int slots = tiles_.slots();
    for (int first = 0; first < slots; first += kTilesAtOnce) {
      begin_tiles(network_.layers[layer], memory_of(layer), first, min(kTilesAtOnce, slots - first));
    }
  }
  /// Where all blocks have begun the layer.
  __device__ void finish(int layer) const {
    const int slots = tiles_.slots();
    if (layer + 1 == network_.layer_count) {  // of which nothing but the query is read
      if (tiles_.have_query()) finish_tiles(network_.layers[layer], memory_of(layer), slots - 1, 1);
      return;
    }
    for (int first = 0; first < slots; first += kTilesAtOnce) {
      finish_tiles(network_.layers[layer], memory_of(layer), first, min(kTilesAtOnce, slots - first));
    }
  }

 private:
  __device__ KeysAndValues<kHeadSize> memory_of(int layer) const {
    const int64_t words = int64_t{network_.heads} * most_tokens_ / 16 * 32 * layer;
    return {keys_ + words * 2 * AttentionShape<kHeadSize>::kGroups,
            values_ + words * AttentionShape<kHeadSize>::kGroups, most_tokens_};
  }

  /// Normalises rows into input_ and, with `in_place`, where they are.
  __device__ void normalise(const PackedNorm& norm, int first, int count, bool in_place) const {
    for_rows(first, count, [&](int slot, int row) {
      normalise_row(norm, row_of(slot, row), input_[slot - first], row, in_place);
    });
    __syncthreads();
  }

  __device__ void normalise_row(const PackedNorm& norm, float* x, const SplitTile& to, int row,
                                bool in_place) const {
    constexpr int kMostNumbers = 4;  // a lane's: 128 columns
    const int numbers = network_.width / 32;
    const bool is_layer_norm = norm.bias != nullptr;
    float values[kMostNumbers], sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < kMostNumbers; ++i) values[i] = i < numbers ? x[lane_number() + 32 * i] : 0;
    if (is_layer_norm) {
      for (const float value : values) sum += value;
      const float mean = sum_of_warp(sum) / static_cast<float>(network_.width);
#pragma unroll
      for (int i = 0; i < kMostNumbers; ++i) values[i] = i < numbers ? values[i] - mean : 0;
    }
    for (const float value : values) squares += value * value;
    const float factor = rsqrtf(sum_of_warp(squares) / static_cast<float>(network_.width) + 1e-5F);
#pragma unroll
    for (int i = 0; i < kMostNumbers; ++i) {
      if (i >= numbers) break;
      const int column = lane_number() + 32 * i;
      float value = values[i] * factor * __ldg(norm.weight + column);
      if (is_layer_norm) value += __ldg(norm.bias + column);
      if (in_place) x[column] = value;
      to.put(row, column, value);
    }
  }

  /// Puts into input_ what a layer reads.
  __device__ void take_input(const PackedLayer& weights, int first, int count) const {
    if (network_.pre_norm) {
      normalise(weights.norm_1, first, count, /*in_place=*/false);
      return;
    }
    for_rows(first, count, [&](int slot, int row) {
      for (int column = lane_number(); column < network_.width; column += 32) {
        input_[slot - first].put(row, column, row_of(slot, row)[column]);
      }
    });
    __syncthreads();
  }

  /// Turns two neighbouring numbers of a head by the token's angle.
  __device__ void turn(int token, int at, float2& numbers) const {
    if (network_.cosines == nullptr) return;
    const int pair = token * (kHeadSize / 2) + at / 2;
    const float cosine = __ldg(network_.cosines + pair), sine = __ldg(network_.sines + pair);
    numbers = {numbers.x * cosine - numbers.y * sine, numbers.y * cosine + numbers.x * sine};
  }

  /// Queries, keys and values.
  __device__ void begin_tiles(const PackedLayer& weights, const KeysAndValues<kHeadSize>& memory, int first,
                              int count) const {
    take_input(weights, first, count);
    multiply<2>(input_, count, weights.attention, [&](int tile, int column, PairOfRows numbers) {
      const int which = column < network_.width ? 0 : column < 2 * network_.width ? 1 : 2;
      column -= which * network_.width;
      if (which < 2) {
        put_queries_or_keys(memory, which == 1, first + tile, column, numbers);
      } else {
        put_values(memory, tiles_.first_token(first + tile), column, numbers);
      }
    });
    __syncthreads();
  }

  __device__ void put_queries_or_keys(const KeysAndValues<kHeadSize>& memory, bool keys, int slot, int column,
                                      PairOfRows& numbers) const {
    const Lane lane;
    for (int side = 0; side < 2; ++side) {
      const int row = lane.row + 8 * side, token = tiles_.first_token(slot) + row;
      if (token >= tiles_.length) break;
      float2& pair = numbers.rows[side];
      turn(token, column % kHeadSize, pair);
      if (keys) {
        memory.put_key(column / kHeadSize, token, column % kHeadSize, pair);
      } else {
        queries_[slot].put(row, column, pair.x, pair.y);
      }
    }
  }

  /// `column` is this lane's.
  __device__ void put_values(const KeysAndValues<kHeadSize>& memory, int first_token, int column,
                             PairOfRows& numbers) const {
    const Lane lane;
    const int head = column / kHeadSize, at = column % kHeadSize;
    const bool whole = first_token % 16 == 0;  // else there are two tokens
    for (int side = 0; side < 2; ++side) {
      const int token = first_token + lane.row + 8 * side;
      float2& pair = numbers.rows[side];
      if (token >= tiles_.length) {
        pair = {0, 0};  // what no token reads must still be a number
      } else if (!whole) {
        memory.put_value(head, token, at, pair.x);
        memory.put_value(head, token, at + 1, pair.y);
      }
    }
    if (whole) memory.put_values(lane, head, first_token, at, numbers);
  }

  /// Attention and MLP, each added to x.
  __device__ void finish_tiles(const PackedLayer& weights, const KeysAndValues<kHeadSize>& memory, int first,
                               int count) const {
    const auto add = [&](int tile, int column, const PairOfRows& numbers) {
      for (int side = 0; side < 2; ++side) {
        auto& pair = *reinterpret_cast<float2*>(row_of(first + tile, Lane().row + 8 * side) + column);
        pair = {pair.x + numbers.rows[side].x, pair.y + numbers.rows[side].y};
      }
    };
    const auto tile_of = [&](int tile) {
      const int token = tiles_.first_token(first + tile);
      return ReadingTile{queries_[first + tile], input_[tile], token,
                         min(token + kTileRows, tiles_.length) - 1};
    };
    attend<kHeadSize>(tile_of, count, memory, network_.heads, parts_);
    multiply<1>(input_, count, weights.output, add);
    __syncthreads();
    normalise(network_.pre_norm ? weights.norm_2 : weights.norm_1, first, count,
              /*in_place=*/!network_.pre_norm);
    multiply<2>(input_, count, weights.up, [&](int tile, int column, const PairOfRows& numbers) {
      for (int side = 0; side < 2; ++side)
        activate(hidden_[tile], Lane().row + 8 * side, column, numbers.rows[side]);
    });
    __syncthreads();
    multiply<1>(hidden_, count, weights.down, add);
    __syncthreads();
    if (!network_.pre_norm) normalise(weights.norm_2, first, count, /*in_place=*/true);
  }

  __device__ void activate(const SplitTile& to, int row, int column, float2 pair) const {
    if (network_.pre_norm) {
      to.put(row, column / 2, pair.x / (1 + __expf(-pair.x)) * pair.y);
    } else {
      to.put(row, column, gelu(pair.x), gelu(pair.y));
    }
  }
  __device__ static float gelu(float x) {
    return 0.5F * x * (1 + erff(x * 0.70710678118654752F));
  }

  const RolloutNetwork& network_;
  int most_tokens_;
  float* x_;
  SplitTiles queries_, input_, hidden_;
  PartsOfHeads<kHeadSize> parts_;
  uint2* keys_;
  uint4* values_;
  TilesOfBlock tiles_ = {};
};

}  // namespace adtrain::gpu
