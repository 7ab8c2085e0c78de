#pragma once

#include "base/Cuda.h"
#include "kernels/encoder/SymbolicEncoder.h"
#include "kernels/primitives/ShortTile.cuh"

/// How the symbolic encoder's kernels use shared memory. A thread block is persistent. It keeps the table and
/// the weights for the whole launch and takes a stage of 16, 32 or 64 tokens at a time. Of a stage it keeps
/// every place of every convolution as a tile of 16 tokens × 32 channels; gradients replace the activations
/// that they belong to.
namespace adtrain::kernels::symbolic_encoder {

using Shape = SymbolicEncoderShape;

constexpr int kWarps = 16, kThreads = kWarps * kWarp;
constexpr int kChannels = Shape::kChannels, kCorners = Shape::kCorners, kFeatures = Shape::kFeatures;
constexpr int kTaken = kCorners * kChannels;  ///< what the second and third convolutions sum over
constexpr int kMostTiles = 4;                 ///< warp tiles of a stage
constexpr int kSymbolTiles = Shape::kMostSymbols / kWarpTile;
constexpr int kFetched = 4;  ///< the most cells of a stage that a thread fetches
static_assert(kWarpTile * Shape::kMostCells <= kFetched * kThreads);
constexpr int kMostBytes = 227 * 1024;

/// Offsets in bytes.
struct Memory {
  int tiles;                  ///< warp tiles of a stage
  int table;                  ///< (4, numbers, 32)
  int second, third, linear;  ///< weights: Tile<128> of 32 rows; of each place a Tile<32> of 64 rows
  int biases;                 ///< fp32: of the three convolutions and the linear layer
  int numbers;                ///< bytes (cells, tokens of a stage)
  int first_map, second_map, third_map;
  // Of the backward pass alone:
  int masks;     ///< a word for each number: the symbols of its digits
  int one_hot;   ///< 16 symbols a half word: (warp tiles, kSymbolTiles, cells, 16 tokens)
  int gradient;  ///< of the linear layer's features: Tile<64> of the stage's tokens
  int bytes;

  __host__ __device__ int tokens() const { return tiles * kWarpTile; }

  /// With as many warp tiles as fit, or one.
  static Memory of(const Shape& shape, bool backward) {
    int tiles = kMostTiles;
    const auto fit = [&] {
      const Memory memory(shape, backward, tiles);
      return memory.bytes <= kMostBytes && memory.tokens() * shape.cells() <= kFetched * kThreads;
    };
    while (tiles > 1 && !fit()) tiles /= 2;
    return {shape, backward, tiles};
  }

 private:
  Memory(const Shape& shape, bool backward, int warp_tiles) : tiles(warp_tiles), bytes(0) {
    const auto take = [&](int64_t size) {
      constexpr int kAlignment = 128;
      const int offset = bytes;
      bytes += static_cast<int>(gpu::divided_up(size, kAlignment)) * kAlignment;
      return offset;
    };
    constexpr int kTileBytes = Tile<kChannels>::bytes(kWarpTile);
    table = take(shape.table_size() * sizeof(Bf16));
    second = take(Tile<kTaken>::bytes(kChannels));
    third = take(Tile<kTaken>::bytes(kChannels));
    linear = take(shape.linear ? shape.places(3) * Tile<kChannels>::bytes(kFeatures) : 0);
    biases = take((Shape::kConvolutions * kChannels + kFeatures) * sizeof(float));
    numbers = take(shape.cells() * tokens());
    first_map = take(tiles * shape.places(1) * kTileBytes);
    second_map = take(tiles * shape.places(2) * kTileBytes);
    // In the forward pass the last convolution's places replace those of the first.
    third_map = backward ? take(tiles * shape.places(3) * kTileBytes) : first_map;
    masks = take(backward ? shape.numbers() * sizeof(uint32_t) : 0);
    one_hot = take(backward ? kSymbolTiles * shape.cells() * tokens() * sizeof(uint16_t) : 0);
    gradient = take(backward && shape.linear ? Tile<kFeatures>::bytes(tokens()) : 0);
  }
};

/// The activations of a convolution, or their gradients: a tile for each warp tile and place.
struct Map {
  Bf16* data;
  int high, wide;

  __device__ int places() const { return high * wide; }
  __device__ Tile<kChannels> at(int tile, int place) const {
    return {data + (tile * places() + place) * kWarpTile * kChannels};
  }
  /// The place at a corner of a place of the next convolution.
  __device__ Tile<kChannels> at(int tile, int y, int x, int corner) const {
    return at(tile, (y + corner / 2) * wide + x + corner % 2);
  }
};

/// A thread block's shared memory.
struct Shared {
  const Shape& shape;
  const Memory& memory;
  char* begin;

  __device__ Shared(const Shape& of_grid, const Memory& of_block)
      : shape(of_grid), memory(of_block), begin(dynamic_shared_memory()) {}

  template <class Value>
  __device__ Value* at(int offset) const {
    return reinterpret_cast<Value*>(begin + offset);
  }
  __device__ Map map(int offset, int convolution) const {
    return {at<Bf16>(offset), shape.height - convolution, shape.width - convolution};
  }
  __device__ Map first() const { return map(memory.first_map, 1); }
  __device__ Map second() const { return map(memory.second_map, 2); }
  __device__ Map third() const { return map(memory.third_map, 3); }
  __device__ Tile<kTaken> second_weight() const { return {at<Bf16>(memory.second)}; }
  __device__ Tile<kTaken> third_weight() const { return {at<Bf16>(memory.third)}; }
  __device__ Tile<kChannels> linear_weight(int place) const {
    return {at<Bf16>(memory.linear) + place * kFeatures * kChannels};
  }
  __device__ Tile<kFeatures> gradient() const { return {at<Bf16>(memory.gradient)}; }
  /// Of convolution 1, 2 or 3; 4: of the linear layer.
  __device__ float* bias(int layer) const { return at<float>(memory.biases) + (layer - 1) * kChannels; }
};

}  // namespace adtrain::kernels::symbolic_encoder
