#include <algorithm>

#include "base/FlatLayout.h"
#include "base/Launch.cuh"
#include "kernels/encoder/EncoderGradients.cuh"
#include "kernels/encoder/SymbolicEncoder.h"

namespace adtrain::kernels {
namespace {

using namespace symbolic_encoder;

/// Calls put(row, column, value) for the elements of the lane in 16 × 8 sums.
template <class Put>
__device__ void for_elements(const Sums& sums, Put put) {
  const auto [row, column] = lane_place();
#pragma unroll
  for (int i = 0; i < 4; ++i) put(row + i / 2 * 8, column + i % 2, sums.value[i]);
}

/// Writes the thread block's part, with zeros in the gaps after the biases.
__device__ void store_parts(const Shared& shared, const GradientSums& sums,
                            const SymbolicEncoderGradients& places, float* of_table, float* of_weights) {
  const CornerShare share;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int first_in = 16 * share.in + 8 * n;
    for_elements(sums.table[n], [&](int row, int column, float value) {
      const int symbol = share.corner * Shape::kMostSymbols + 16 * share.out + row;
      of_table[symbol * kChannels + first_in + column] = value;
    });
    const auto put_weight = [&](const Sums& of_weight, int begin) {
      for_elements(of_weight, [&](int row, int column, float value) {
        const int in = first_in + column;
        of_weights[begin + ((16 * share.out + row) * kChannels + in) * kCorners + share.corner] = value;
      });
    };
    put_weight(sums.second[n], places.second);
    put_weight(sums.third[n], places.third);
  }
  const auto put_bias = [](const Sums& bias, float* to) {
    for_elements(bias, [&](int row, int column, float value) {
      if (column == 0) to[row] = value;
    });
  };
  if (share.has_bias()) {
    put_bias(sums.second_bias, of_weights + places.second_bias + 16 * share.out);
    put_bias(sums.third_bias, of_weights + places.third_bias + 16 * share.out);
  }
  const int gap = kChannels + static_cast<int>(threadIdx.x);
  if (places.second_bias + gap < places.third) of_weights[places.second_bias + gap] = 0;
  if (places.third_bias + gap < places.linear) of_weights[places.third_bias + gap] = 0;

  const LinearShare linear;
  const int taken = shared.shape.places(3);
  if (!shared.shape.linear || linear.place >= taken) return;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    for_elements(sums.linear[n], [&](int row, int column, float value) {
      const int out = 16 * linear.out + row, channel = 8 * n + column;
      of_weights[places.linear + (out * kChannels + channel) * taken + linear.place] = value;
    });
  }
  if (linear.place == 0) put_bias(sums.linear_bias, of_weights + places.linear_bias + 16 * linear.out);
}

template <class Short>
__global__ void __launch_bounds__(kThreads, 1)
    encoder_backward_kernel(Shape shape, Memory memory, int64_t stages, SymbolArray cells, const void* table,
                            SymbolicEncoderWeights weights, const void* d_features,
                            SymbolicEncoderGradients places, float* of_table, float* of_weights) {
  const Shared shared(shape, memory);
  const Map first = shared.first(), second = shared.second(), third = shared.third();
  const int tiles = memory.tiles;
  load_weights<Short>(shared, table, weights);
  make_masks(shared);
  GradientSums sums = {};
  NextCells next(shared, cells);
  next.fetch(blockIdx.x);
  __syncthreads();
  for (int64_t stage = blockIdx.x; stage < stages; stage += gridDim.x) {
    const int64_t first_token = stage * memory.tokens();
    next.store([&](int number, int cell, int token) {
      next.store_number(number, cell, token);
      store_one_hot(shared, number, cell, token);
    });
    if (shape.linear) start_gradients(shared, first_token, d_features);
    __syncthreads();
    next.fetch(stage + gridDim.x);
    look_up<Short>(shared);
    __syncthreads();
    convolve<Short>(first, shared.second_weight(), shared.bias(2), second, tiles);
    __syncthreads();
    convolve<Short>(second, shared.third_weight(), shared.bias(3), third, tiles);
    copies_arrived();
    __syncthreads();
    if (shape.linear) {
      add_linear_gradient<Short>(shared, sums);
      __syncthreads();
      linear_back<Short>(shared);
    } else {
      take_third_gradients(shared, first_token, d_features);
    }
    __syncthreads();
    add_convolution_gradient<Short>(third, second, tiles, sums.third, sums.third_bias);
    __syncthreads();
    convolve_back<Short>(third, shared.third_weight(), second, tiles);
    __syncthreads();
    add_convolution_gradient<Short>(second, first, tiles, sums.second, sums.second_bias);
    __syncthreads();
    convolve_back<Short>(second, shared.second_weight(), first, tiles);
    __syncthreads();
    add_table_gradient<Short>(shared, sums.table);
    __syncthreads();
  }
  store_parts(shared, sums, places, of_table + int64_t{blockIdx.x} * kSymbolTableGradient,
              of_weights + int64_t{blockIdx.x} * places.total);
}

/// The digit that a symbol belongs to, and its value there.
struct Symbol {
  int digit = 0, value;

  __device__ Symbol(const Shape& shape, int symbol) : value(symbol) {
    while (value >= shape.values[digit]) value -= shape.values[digit++];
  }
};

struct TableGradients {
  float* embeddings[Shape::kMostDigits];
  float *convolution, *bias;
};

constexpr int kTableThreads = 256;

/// A thread makes one element of a gradient: of the convolution's weight, then of the embeddings, then of the
/// bias.
template <class Short>
__global__ void __launch_bounds__(kTableThreads)
    table_backward_kernel(Shape shape, SymbolicEncoderWeights weights, const float* d_table,
                          TableGradients gradients) {
  const auto value_of = [](const void* numbers, int index) {
    return unpacked<Short>(unsigned{__ldg(static_cast<const unsigned short*>(numbers) + index)}).x;
  };
  const auto gradient_of = [&](int corner, int symbol, int channel) {
    return __ldg(d_table + (corner * Shape::kMostSymbols + symbol) * kChannels + channel);
  };
  constexpr int kOfDigit = Shape::kDigitFeatures;
  const int taken = shape.digits * kOfDigit, of_weight = kChannels * taken * kCorners;
  const int element = static_cast<int>(blockIdx.x) * kTableThreads + static_cast<int>(threadIdx.x),
            of_embedding = element - of_weight, of_bias = of_embedding - shape.symbols() * kOfDigit;
  float sum = 0;
  if (element < of_weight) {
    const int channel = element / (taken * kCorners), feature = element / kCorners % taken,
              corner = element % kCorners, digit = feature / kOfDigit;
    int first_symbol = 0;
    for (int before = 0; before < digit; ++before) first_symbol += shape.values[before];
    for (int value = 0; value < shape.values[digit]; ++value) {
      sum += gradient_of(corner, first_symbol + value, channel) *
             value_of(weights.embeddings[digit], value * kOfDigit + feature % kOfDigit);
    }
    gradients.convolution[element] += sum;
  } else if (of_bias < 0) {
    const int symbol = of_embedding / kOfDigit, k = of_embedding % kOfDigit;
    const Symbol row(shape, symbol);
    for (int channel = 0; channel < kChannels; ++channel) {
      const int weight = (channel * taken + row.digit * kOfDigit + k) * kCorners;
      for (int corner = 0; corner < kCorners; ++corner) {
        sum += gradient_of(corner, symbol, channel) * value_of(weights.convolution[0], weight + corner);
      }
    }
    gradients.embeddings[row.digit][row.value * kOfDigit + k] += sum;
  } else if (of_bias < kChannels) {
    // Each place has one symbol of the first digit at its first corner.
    for (int symbol = 0; symbol < shape.values[0]; ++symbol) sum += gradient_of(0, symbol, of_bias);
    gradients.bias[of_bias] += sum;
  }
}

}  // namespace

SymbolicEncoderGradients SymbolicEncoderGradients::of(const SymbolicEncoderShape& shape) {
  std::vector<int64_t> sizes = {kChannels * kTaken, kChannels, kChannels * kTaken, kChannels};
  if (shape.linear) {
    sizes.push_back(int64_t{kFeatures} * kChannels * shape.places(3));
    sizes.push_back(kFeatures);
  }
  const FlatLayout layout(sizes);
  const auto begin = [&](size_t parameter) {
    return static_cast<int>(parameter < sizes.size() ? layout.offset(parameter) : layout.total());
  };
  return {begin(0), begin(1), begin(2), begin(3), begin(4), begin(5), begin(6)};
}

int symbolic_encoder_bytes(const SymbolicEncoderShape& shape) {
  return Memory::of(shape, /*backward=*/true).bytes;
}

int symbolic_encoder_parts(const SymbolicEncoderShape& shape) {
  const int64_t stages = stages_of(shape, Memory::of(shape, /*backward=*/true));
  return static_cast<int>(std::min<int64_t>(stages, gpu::multiprocessors()));
}

void encode_symbols_backward(const SymbolicEncoderShape& shape, const SymbolArray& cells, const void* table,
                             const SymbolicEncoderWeights& weights, const void* d_features, float* of_table,
                             float* of_weights, cudaStream_t stream) {
  const Memory memory = Memory::of(shape, /*backward=*/true);
  const auto blocks = static_cast<unsigned>(symbolic_encoder_parts(shape));
  with_type(shape.type, [&](auto type) {
    gpu::launch("encoder_backward_kernel", encoder_backward_kernel<decltype(type)>, blocks, kThreads,
                memory.bytes, stream, shape, memory, stages_of(shape, memory), cells, table, weights,
                d_features, SymbolicEncoderGradients::of(shape), of_table, of_weights);
  });
}

void symbol_table_backward(const SymbolicEncoderShape& shape, const SymbolicEncoderWeights& weights,
                           const float* d_table,
                           float* const (&embeddings)[SymbolicEncoderShape::kMostDigits], float* convolution,
                           float* bias, cudaStream_t stream) {
  TableGradients gradients = {{}, convolution, bias};
  std::copy_n(embeddings, SymbolicEncoderShape::kMostDigits, gradients.embeddings);
  const int elements =
      (shape.digits * kChannels * kCorners + shape.symbols()) * Shape::kDigitFeatures + kChannels;
  with_type(shape.type, [&](auto type) {
    gpu::launch("table_backward_kernel", table_backward_kernel<decltype(type)>,
                static_cast<unsigned>(gpu::divided_up(elements, kTableThreads)), kTableThreads, 0, stream,
                shape, weights, d_table, gradients);
  });
}

}  // namespace adtrain::kernels
