#pragma once

#include "kernels/encoder/EncoderMemory.cuh"

/// What both passes of the symbolic encoder do, each by all threads of a block. Barriers between them are the
/// kernels'.
namespace adtrain::kernels::symbolic_encoder {

/// Loads table, weights and biases into shared memory. Weights are rearranged so that the four corners of a
/// convolution's kernel are neighbouring columns, and those of the linear layer by place.
template <class Short>
__device__ void load_weights(const Shared& shared, const void* table, const SymbolicEncoderWeights& weights) {
  const Shape& shape = shared.shape;
  const auto bits_of = [](const void* numbers, int index) {
    return __ldg(static_cast<const unsigned short*>(numbers) + index);
  };
  uint4* const rows = shared.at<uint4>(shared.memory.table);
  for (int chunk = threadIdx.x; chunk < shape.table_size() / 8; chunk += kThreads) {
    rows[chunk] = __ldg(static_cast<const uint4*>(table) + chunk);
  }
  const auto set = [](Bf16* to, unsigned short bits) { *reinterpret_cast<unsigned short*>(to) = bits; };
  for (int layer = 2; layer <= 3; ++layer) {
    const Tile<kTaken> tile = layer == 2 ? shared.second_weight() : shared.third_weight();
    const void* weight = weights.convolution[layer - 1];
    for (int index = threadIdx.x; index < kChannels * kTaken; index += kThreads) {
      const int out = index / kTaken, in = index / kCorners % kChannels, corner = index % kCorners;
      set(tile.at(out, corner * kChannels + in), bits_of(weight, index));
    }
  }
  const int places = shape.places(3), taken = places * kChannels;
  for (int index = threadIdx.x; shape.linear && index < kFeatures * taken; index += kThreads) {
    const int out = index / taken, channel = index % taken / places, place = index % places;
    set(shared.linear_weight(place).at(out, channel), bits_of(weights.linear, index));
  }
  const auto value_of = [&](const void* numbers, int index) {
    return unpacked<Short>(unsigned{bits_of(numbers, index)}).x;
  };
  const int thread = threadIdx.x;
  for (int layer = 1; layer <= 3 && thread < kChannels; ++layer) {
    shared.bias(layer)[thread] = value_of(weights.bias[layer - 1], thread);
  }
  if (shape.linear && thread < kFeatures) {
    shared.bias(4)[thread] = value_of(weights.linear_bias, thread);
  }
}

/// The cells of one stage, on their way from global to shared memory: they are loaded while the stage before
/// is computed.
class NextCells {
 public:
  __device__ NextCells(const Shared& shared, const SymbolArray& cells) : shared_(shared), cells_(cells) {}

  /// Starts to load. Tokens beyond the last have number 0 everywhere.
  __device__ void fetch(int64_t stage) {
    const Shape& shape = shared_.shape;
    const int64_t first = stage * shared_.memory.tokens() * shape.cells();
#pragma unroll
    for (int k = 0; k < kFetched; ++k) {
      const int64_t cell = first + threadIdx.x + k * kThreads;
      const bool needed = static_cast<int>(threadIdx.x) + k * kThreads < count();
      number_[k] = needed && cell < shape.tokens * shape.cells() ? number_of(cell) : 0;
    }
  }
  /// Calls set(number, cell, token of the stage) for those that this thread has loaded.
  template <class Set>
  __device__ void store(Set set) const {
    const int cells = shared_.shape.cells();
#pragma unroll
    for (int k = 0; k < kFetched; ++k) {
      const int index = static_cast<int>(threadIdx.x) + k * kThreads;
      if (index < count()) set(number_[k], index % cells, index / cells);
    }
  }
  /// Stores for look_up().
  __device__ void store_number(int number, int cell, int token) const {
    shared_.at<uint8_t>(shared_.memory.numbers)[cell * shared_.memory.tokens() + token] =
        static_cast<uint8_t>(number);
  }

 private:
  __device__ int count() const {
    return shared_.memory.tokens() * shared_.shape.cells();
  }
  __device__ unsigned read(int64_t index) const {
    return cells_.bytes ? __ldg(static_cast<const uint8_t*>(cells_.numbers) + index)
                        : static_cast<unsigned>(__ldg(static_cast<const int32_t*>(cells_.numbers) + index));
  }
  __device__ int number_of(int64_t cell) const {
    const Shape& shape = shared_.shape;
    unsigned number = 0;
    if (cells_.packed) {
      number = read(cell);
    } else {
      for (int digit = 0; digit < shape.digits; ++digit) {
        number = number * shape.values[digit] + read(cell * shape.digits + digit);
      }
    }
    return static_cast<int>(min(number, static_cast<unsigned>(shape.numbers() - 1)));
  }

  const Shared& shared_;
  const SymbolArray& cells_;
  int number_[kFetched];
};

/// ReLU; NaN passes through.
__device__ inline float positive(float value) {
  return value < 0.0f ? 0.0f : value;
}

/// The first convolution: four rows of the table for each place. Four neighbouring threads make the 32
/// channels of a token's place.
template <class Short>
__device__ void look_up(const Shared& shared) {
  const Map to = shared.first();
  const int tokens = shared.memory.tokens(), wide = shared.shape.width, numbers = shared.shape.numbers();
  const int chunk = threadIdx.x % 4, token = threadIdx.x / 4 % tokens;
  const uint8_t* const of_cells = shared.at<uint8_t>(shared.memory.numbers) + token;
  const uint4* const table = shared.at<uint4>(shared.memory.table) + chunk;
  for (int place = threadIdx.x / (4 * tokens); place < to.places(); place += kThreads / (4 * tokens)) {
    const int cell = place / to.wide * wide + place % to.wide;
    float sums[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = shared.bias(1)[8 * chunk + i];
#pragma unroll
    for (int corner = 0; corner < kCorners; ++corner) {
      const int number = of_cells[(cell + corner / 2 * wide + corner % 2) * tokens];
      const uint4 row = table[(corner * numbers + number) * 4];
      const unsigned words[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const float2 values = unpacked<Short>(words[pair]);
        sums[2 * pair] += values.x;
        sums[2 * pair + 1] += values.y;
      }
    }
    const auto pair = [&](int number) {
      return packed<Short>(positive(sums[2 * number]), positive(sums[2 * number + 1]));
    };
    *reinterpret_cast<uint4*>(to.at(token / kWarpTile, place).at(token % kWarpTile, 8 * chunk)) = {
        pair(0), pair(1), pair(2), pair(3)};
  }
}

/// The warps in two groups, each of which makes 16 of a place's 32 channels: so its fragments of the weights
/// stay in registers while it takes one place after another.
struct HalfOfChannels {
  int first = 16 * static_cast<int>(threadIdx.x / kWarp % 2);
  int worker = threadIdx.x / kWarp / 2;
  static constexpr int kWorkers = kWarps / 2;
};

/// Calls item(warp tile, y, x) for the places of a map that are this worker's.
template <class Item>
__device__ void for_places(const Map& map, int tiles, int worker, Item item) {
  for (int number = worker; number < tiles * map.places(); number += HalfOfChannels::kWorkers) {
    const int place = number % map.places();
    item(number / map.places(), place / map.wide, place % map.wide);
  }
}

/// The second and the third convolution.
template <class Short>
__device__ void convolve(const Map& from, Tile<kTaken> weight, const float* bias, const Map& to, int tiles) {
  const HalfOfChannels half;
  const LanePlace lane = lane_place();
  RightFragments right[kTaken / 16];
#pragma unroll
  for (int k = 0; k < kTaken / 16; ++k) right[k] = right_of_transposed(weight, half.first, 16 * k);
  for_places(to, tiles, half.worker, [&](int tile, int y, int x) {
    Sums sums[2] = {sums_from(bias + half.first + lane.column),
                    sums_from(bias + half.first + 8 + lane.column)};
#pragma unroll
    for (int k = 0; k < kTaken / 16; ++k) {
      const LeftFragment left = left_of(from.at(tile, y, x, k / 2), 0, 16 * (k % 2));
      multiply_add<Short>(sums[0], sums[1], left, right[k]);
    }
    const Tile<kChannels> out = to.at(tile, y * to.wide + x);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float(&value)[4] = sums[n].value;
      const int at = half.first + 8 * n + lane.column;
      out.set_pair(lane.row, at, packed<Short>(positive(value[0]), positive(value[1])));
      out.set_pair(lane.row + 8, at, packed<Short>(positive(value[2]), positive(value[3])));
    }
  });
}

/// The number of the last convolution's (channel, place) in its features, of which a thread takes pairs.
struct PairOfFeatures {
  int token, channel[2], place[2];

  __device__ PairOfFeatures(int pair, int features, int places) : token(2 * pair / features) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int feature = 2 * pair % features + i;
      channel[i] = feature / places;
      place[i] = feature % places;
    }
  }
  __device__ Bf16* at(const Map& map, int which) const {
    return map.at(token / kWarpTile, place[which]).at(token % kWarpTile, channel[which]);
  }
};

inline int64_t stages_of(const Shape& shape, const Memory& memory) {
  return gpu::divided_up(shape.tokens, memory.tokens());
}

}  // namespace adtrain::kernels::symbolic_encoder
