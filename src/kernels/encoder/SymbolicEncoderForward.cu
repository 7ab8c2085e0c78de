#include <algorithm>

#include "base/Launch.cuh"
#include "kernels/encoder/EncoderStages.cuh"
#include "kernels/encoder/SymbolicEncoder.h"

namespace adtrain::kernels {
namespace {

using namespace symbolic_encoder;

/// A thread block makes the four rows of one number, a thread one element of them.
template <class Short>
__global__ void __launch_bounds__(kTaken)
    table_kernel(Shape shape, SymbolicEncoderWeights weights, unsigned short* table) {
  const auto value_of = [](const void* numbers, int index) {
    return unpacked<Short>(unsigned{__ldg(static_cast<const unsigned short*>(numbers) + index)}).x;
  };
  const int corner = threadIdx.x % kCorners, channel = threadIdx.x / kCorners;
  const int number = static_cast<int>(blockIdx.x), taken = shape.digits * Shape::kDigitFeatures;
  float sum = 0;
  for (int digit = shape.digits - 1, rest = number; digit >= 0; --digit) {
    const int value = rest % shape.values[digit];
    rest /= shape.values[digit];
#pragma unroll 8
    for (int k = 0; k < Shape::kDigitFeatures; ++k) {
      const int feature = digit * Shape::kDigitFeatures + k;
      sum += value_of(weights.embeddings[digit], value * Shape::kDigitFeatures + k) *
             value_of(weights.convolution[0], (channel * taken + feature) * kCorners + corner);
    }
  }
  table[(corner * shape.numbers() + number) * kChannels + channel] =
      static_cast<unsigned short>(packed<Short>(sum, 0.0f));
}

/// The linear layer: a warp makes 16 features of 16 tokens.
template <class Short>
__device__ void store_linear(const Shared& shared, int64_t first_token, void* features) {
  constexpr int kGroups = kFeatures / 16;
  const auto [row, column] = lane_place();
  const Map from = shared.third();
  for (int item = threadIdx.x / kWarp; item < shared.memory.tiles * kGroups; item += kWarps) {
    const int tile = item / kGroups, first = 16 * (item % kGroups);
    const float* const bias = shared.bias(4) + first + column;
    Sums sums[2] = {sums_from(bias), sums_from(bias + 8)};
    for (int place = 0; place < from.places(); ++place) {
#pragma unroll
      for (int k = 0; k < kChannels; k += 16) {
        multiply_add<Short>(sums[0], sums[1], left_of(from.at(tile, place), 0, k),
                            right_of_transposed(shared.linear_weight(place), first, k));
      }
    }
    const int64_t token = first_token + tile * kWarpTile + row;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      Bf16* const to = static_cast<Bf16*>(features) + token * kFeatures + first + 8 * n + column;
      const float(&value)[4] = sums[n].value;
      store_if(token < shared.shape.tokens, to, packed<Short>(value[0], value[1]));
      store_if(token + 8 < shared.shape.tokens, to + 8 * kFeatures, packed<Short>(value[2], value[3]));
    }
  }
}

/// The features of the last convolution as they are.
__device__ void store_third(const Shared& shared, int64_t first_token, void* features) {
  const Map from = shared.third();
  const int of_token = kChannels * from.places(), pairs = shared.memory.tokens() * of_token / 2;
  for (int pair = threadIdx.x; pair < pairs; pair += kThreads) {
    const PairOfFeatures place(pair, of_token, from.places());
    const auto bits = [&](int which) {
      return uint32_t{*reinterpret_cast<const unsigned short*>(place.at(from, which))};
    };
    Bf16* const to = static_cast<Bf16*>(features) + first_token * of_token + int64_t{2} * pair;
    store_if(first_token + place.token < shared.shape.tokens, to, bits(0) | bits(1) << 16);
  }
}

template <class Short>
__global__ void __launch_bounds__(kThreads, 1)
    encoder_forward_kernel(Shape shape, Memory memory, int64_t stages, SymbolArray cells, const void* table,
                           SymbolicEncoderWeights weights, void* features) {
  const Shared shared(shape, memory);
  load_weights<Short>(shared, table, weights);
  NextCells next(shared, cells);
  next.fetch(blockIdx.x);
  for (int64_t stage = blockIdx.x; stage < stages; stage += gridDim.x) {
    next.store([&](int number, int cell, int token) { next.store_number(number, cell, token); });
    __syncthreads();
    next.fetch(stage + gridDim.x);
    look_up<Short>(shared);
    __syncthreads();
    convolve<Short>(shared.first(), shared.second_weight(), shared.bias(2), shared.second(), memory.tiles);
    __syncthreads();
    convolve<Short>(shared.second(), shared.third_weight(), shared.bias(3), shared.third(), memory.tiles);
    __syncthreads();
    if (shape.linear) {
      store_linear<Short>(shared, stage * memory.tokens(), features);
    } else {
      store_third(shared, stage * memory.tokens(), features);
    }
  }
}

}  // namespace

void make_symbol_table(const SymbolicEncoderShape& shape, const SymbolicEncoderWeights& weights, void* table,
                       cudaStream_t stream) {
  with_type(shape.type, [&](auto type) {
    gpu::launch("table_kernel", table_kernel<decltype(type)>, static_cast<unsigned>(shape.numbers()), kTaken,
                0, stream, shape, weights, static_cast<unsigned short*>(table));
  });
}

void encode_symbols(const SymbolicEncoderShape& shape, const SymbolArray& cells, const void* table,
                    const SymbolicEncoderWeights& weights, void* features, cudaStream_t stream) {
  const Memory memory = Memory::of(shape, /*backward=*/false);
  const int64_t stages = stages_of(shape, memory);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(stages, gpu::multiprocessors()));
  with_type(shape.type, [&](auto type) {
    gpu::launch("encoder_forward_kernel", encoder_forward_kernel<decltype(type)>, blocks, kThreads,
                memory.bytes, stream, shape, memory, stages, cells, table, weights, features);
  });
}

}  // namespace adtrain::kernels
