#pragma once

#include "kernels/encoder/EncoderStages.cuh"

/// What the backward pass of the symbolic encoder does beside computing the activations again, each by all
/// threads of a block. Barriers between the functions are the kernel's. A warp owns parts of the gradients,
/// which stay in its registers until the last stage.
namespace adtrain::kernels::symbolic_encoder {

/// A warp's share of each convolution's gradient: of one corner 16 outputs (of the table: symbols) × 16
/// inputs (of the table: channels).
struct CornerShare {
  int corner = static_cast<int>(threadIdx.x) / kWarp % kCorners;
  int out = static_cast<int>(threadIdx.x) / kWarp / kCorners % 2;
  int in = static_cast<int>(threadIdx.x) / kWarp / kCorners / 2;

  /// Whether the warp also sums the gradients of the bias.
  __device__ bool has_bias() const { return corner == 0 && in == 0; }
};
static_assert(kWarps == kCorners * 2 * 2 && kChannels == 2 * 16 && kSymbolTiles == 2);

/// A warp's share of the linear layer's: 16 outputs × the channels of one place.
struct LinearShare {
  int out = static_cast<int>(threadIdx.x) / kWarp % (kFeatures / 16);
  int place = static_cast<int>(threadIdx.x) / kWarp / (kFeatures / 16);
};
static_assert(kWarps == kFeatures / 16 * Shape::kMostLinearPlaces);

struct GradientSums {
  Sums table[2], second[2], third[2], linear[4];
  Sums second_bias, third_bias, linear_bias;
};

/// Adds the sums of the gradients over the tokens of a fragment to a bias' gradient.
template <class Short>
__device__ void add_to_bias(Sums& sums, const LeftFragment& gradients) {
  multiply_add<Short>(sums, gradients, kTwoOnes<Short>, kTwoOnes<Short>);
}

/// Replaces 16 channels of activations by the sums where an activation is positive and by 0 elsewhere.
template <class Short>
__device__ void replace_activations(const Sums (&sums)[2], Tile<kChannels> tile, int first_channel) {
  const auto [row, column] = lane_place();
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int at = first_channel + 8 * n + column;
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const uint32_t active = tile.pair(row + 8 * lower, at);
      const float first = sums[n].value[2 * lower], second = sums[n].value[2 * lower + 1];
      tile.set_pair(row + 8 * lower, at,
                    packed<Short>((active & 0xffffU) != 0 ? first : 0.0f, active >> 16 != 0 ? second : 0.0f));
    }
  }
}

/// Starts to copy the features' gradients of a stage; those of tokens beyond the last are 0.
__device__ inline void start_gradients(const Shared& shared, int64_t first_token, const void* d_features) {
  constexpr int kChunks = kFeatures / 8;
  const Bf16* const from = static_cast<const Bf16*>(d_features);
  for (int chunk = threadIdx.x; chunk < shared.memory.tokens() * kChunks; chunk += kThreads) {
    const int token = chunk / kChunks, column = 8 * (chunk % kChunks);
    const bool exists = first_token + token < shared.shape.tokens;
    start_copy_or_clear(shared.gradient().at(token, column),
                        exists ? from + (first_token + token) * kFeatures + column : from, exists);
  }
}

/// Of the linear layer's weight and bias.
template <class Short>
__device__ void add_linear_gradient(const Shared& shared, GradientSums& sums) {
  const LinearShare share;
  const Map from = shared.third();
  if (share.place >= from.places()) return;
  for (int tile = 0; tile < shared.memory.tiles; ++tile) {
    const LeftFragment left = left_of_transposed(shared.gradient(), tile * kWarpTile, 16 * share.out);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      multiply_add<Short>(sums.linear[2 * n], sums.linear[2 * n + 1], left,
                          right_of(from.at(tile, share.place), 0, 16 * n));
    }
    if (share.place == 0) add_to_bias<Short>(sums.linear_bias, left);
  }
}

/// The gradient of the last convolution, from that of the linear layer's features.
template <class Short>
__device__ void linear_back(const Shared& shared) {
  const HalfOfChannels half;
  const Map to = shared.third();
  for_places(to, shared.memory.tiles, half.worker, [&](int tile, int y, int x) {
    const int place = y * to.wide + x;
    Sums sums[2] = {no_sums(), no_sums()};
#pragma unroll
    for (int k = 0; k < kFeatures; k += 16) {
      multiply_add<Short>(sums[0], sums[1], left_of(shared.gradient(), tile * kWarpTile, k),
                          right_of(shared.linear_weight(place), k, half.first));
    }
    replace_activations<Short>(sums, to.at(tile, place), half.first);
  });
}

/// The same where the features are those of the last convolution.
__device__ inline void take_third_gradients(const Shared& shared, int64_t first_token,
                                            const void* d_features) {
  const Map to = shared.third();
  const int of_token = kChannels * to.places(), pairs = shared.memory.tokens() * of_token / 2;
  for (int pair = threadIdx.x; pair < pairs; pair += kThreads) {
    const PairOfFeatures place(pair, of_token, to.places());
    const Bf16* const from =
        static_cast<const Bf16*>(d_features) + first_token * of_token + int64_t{2} * pair;
    const bool exists = first_token + place.token < shared.shape.tokens;
    const uint32_t gradients = exists ? __ldg(reinterpret_cast<const unsigned*>(from)) : 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned short* const at = reinterpret_cast<unsigned short*>(place.at(to, i));
      *at = *at != 0 ? static_cast<unsigned short>(gradients >> 16 * i) : 0;
    }
  }
}

/// Of the weight and the bias of a convolution with these inputs, from the gradients of its outputs.
template <class Short>
__device__ void add_convolution_gradient(const Map& gradient, const Map& from, int tiles, Sums (&sums)[2],
                                         Sums& bias) {
  const CornerShare share;
  for (int tile = 0; tile < tiles; ++tile) {
    for (int y = 0; y < gradient.high; ++y) {
      for (int x = 0; x < gradient.wide; ++x) {
        const LeftFragment left =
            left_of_transposed(gradient.at(tile, y * gradient.wide + x), 0, 16 * share.out);
        multiply_add<Short>(sums[0], sums[1], left,
                            right_of(from.at(tile, y, x, share.corner), 0, 16 * share.in));
        if (share.has_bias()) add_to_bias<Short>(bias, left);
      }
    }
  }
}

/// Replaces the inputs of a convolution, which are activations, by their gradients.
template <class Short>
__device__ void convolve_back(const Map& gradient, Tile<kTaken> weight, const Map& to, int tiles) {
  const HalfOfChannels half;
  RightFragments right[kCorners][2];
#pragma unroll
  for (int corner = 0; corner < kCorners; ++corner) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      right[corner][k] = right_of(weight, 16 * k, corner * kChannels + half.first);
    }
  }
  for_places(to, tiles, half.worker, [&](int tile, int y, int x) {
    Sums sums[2] = {no_sums(), no_sums()};
#pragma unroll
    for (int corner = 0; corner < kCorners; ++corner) {
      const int out_y = y - corner / 2, out_x = x - corner % 2;
      if (out_y < 0 || out_x < 0 || out_y >= gradient.high || out_x >= gradient.wide) continue;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        multiply_add<Short>(sums[0], sums[1],
                            left_of(gradient.at(tile, out_y * gradient.wide + out_x), 0, 16 * k),
                            right[corner][k]);
      }
    }
    replace_activations<Short>(sums, to.at(tile, y * to.wide + x), half.first);
  });
}

/// The symbols of each number's digits as bits.
__device__ inline void make_masks(const Shared& shared) {
  const Shape& shape = shared.shape;
  for (int number = threadIdx.x; number < shape.numbers(); number += kThreads) {
    uint32_t mask = 0;
    int rest = number, first_symbol = shape.symbols();
    for (int digit = shape.digits - 1; digit >= 0; --digit) {
      first_symbol -= shape.values[digit];
      mask |= 1U << (first_symbol + rest % shape.values[digit]);
      rest /= shape.values[digit];
    }
    shared.at<uint32_t>(shared.memory.masks)[number] = mask;
  }
}

/// The half word of a cell's symbols `tile` · 16 …, of the first of 16 tokens.
__device__ inline uint16_t* one_hot_of(const Shared& shared, int warp_tile, int tile, int cell) {
  return shared.at<uint16_t>(shared.memory.one_hot) +
         ((warp_tile * kSymbolTiles + tile) * shared.shape.cells() + cell) * kWarpTile;
}
__device__ inline void store_one_hot(const Shared& shared, int number, int cell, int token) {
  const uint32_t mask = shared.at<uint32_t>(shared.memory.masks)[number];
#pragma unroll
  for (int tile = 0; tile < kSymbolTiles; ++tile) {
    one_hot_of(shared, token / kWarpTile, tile, cell)[token % kWarpTile] =
        static_cast<uint16_t>(mask >> kWarpTile * tile);
  }
}

/// Of the table: one-hot rows of symbols, as columns over the tokens, times the gradients of the first
/// convolution.
template <class Short>
__device__ void add_table_gradient(const Shared& shared, Sums (&sums)[2]) {
  const CornerShare share;
  const auto [row, column] = lane_place();
  const Map gradient = shared.first();
  const auto ones = [](uint32_t half_words, int symbol) {
    return (half_words >> symbol & 0x00010001U) * kOneBits<Short>;
  };
  for (int tile = 0; tile < shared.memory.tiles; ++tile) {
    for (int y = 0; y < gradient.high; ++y) {
      for (int x = 0; x < gradient.wide; ++x) {
        const int cell = (y + share.corner / 2) * shared.shape.width + x + share.corner % 2;
        const uint16_t* const of_tokens = one_hot_of(shared, tile, share.out, cell) + column;
        const uint32_t low = *reinterpret_cast<const uint32_t*>(of_tokens),
                       high = *reinterpret_cast<const uint32_t*>(of_tokens + 8);
        const LeftFragment left = {
            {ones(low, row), ones(low, row + 8), ones(high, row), ones(high, row + 8)}};
        multiply_add<Short>(sums[0], sums[1], left,
                            right_of(gradient.at(tile, y * gradient.wide + x), 0, 16 * share.in));
      }
    }
  }
}

}  // namespace adtrain::kernels::symbolic_encoder
