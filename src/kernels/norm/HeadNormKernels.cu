#include <algorithm>
#include <type_traits>

#include "base/Launch.cuh"
#include "kernels/norm/HeadNormKernels.h"
#include "kernels/primitives/RowVectors.cuh"

namespace adtrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksAProcessor = 4;  ///< of each kind; a thread block takes one group of rows after another
constexpr int kAhead = 4;             ///< groups of rows in flight in the forward pass

/// The lanes of a row, each with one vector of it. Lanes without a row take part in their sums.
template <int HeadSize>
struct RowOfHead {
  static constexpr int kLanes = HeadSize / kVectorWidth, kRows = kThreads / kLanes;

  int sequence, token, head, lane;
  bool exists;

  /// The order is that of memory: by sequence, token and head.
  static __device__ RowOfHead of(const HeadNormShape& shape, int first) {
    const int thread = static_cast<int>(threadIdx.x), row = first + thread / kLanes;
    const int of_all = row / shape.heads;
    return {of_all / shape.tokens, of_all % shape.tokens, row % shape.heads, thread % kLanes,
            row < shape.rows};
  }
  template <class Value>
  __device__ Value* at(const HeadRows<Value>& rows, int kind) const {
    return rows.kinds[kind] + sequence * rows.of_sequence + token * rows.of_token + head * rows.of_head +
           lane;
  }
  template <class Short>
  __device__ Floats load(const HeadRows<const Vector>& rows, int kind) const {
    return exists ? unpacked<Short>(__ldg(at(rows, kind))) : Floats{};
  }

  static __device__ float sum(float value) {
    constexpr unsigned kAllLanes = 0xffffffffu;
#pragma unroll
    for (int apart = 1; apart < kLanes; apart *= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
    return value;
  }
};

/// Replaces x by (x − mean) / deviation, of RMSNorm by x / root mean square. Returns 1 / deviation.
template <int HeadSize, bool Layer>
__device__ float normalise(Floats& x, float epsilon) {
  using Row = RowOfHead<HeadSize>;
  constexpr float kPerElement = 1.0f / HeadSize;
  if constexpr (Layer) {
    float total = 0.0f;
#pragma unroll
    for (const float value : x.at) total += value;
    const float mean = Row::sum(total) * kPerElement;
#pragma unroll
    for (float& value : x.at) value -= mean;
  }
  float squares = 0.0f;
#pragma unroll
  for (const float value : x.at) squares += value * value;
  const float inverse = rsqrtf(Row::sum(squares) * kPerElement + epsilon);
#pragma unroll
  for (float& value : x.at) value *= inverse;
  return inverse;
}

template <class Short, int HeadSize, bool Layer>
__global__ void __launch_bounds__(kThreads)
    head_norm_forward_kernel(const __grid_constant__ HeadNormShape shape,
                             const __grid_constant__ HeadRows<const Vector> x,
                             const __grid_constant__ HeadRows<Vector> y) {
  using Row = RowOfHead<HeadSize>;
  const int kind = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % Row::kLanes;
  const Floats weight = unpacked<Short>(__ldg(shape.weights[kind] + lane));
  Floats bias = {};
  if constexpr (Layer) bias = unpacked<Short>(__ldg(shape.biases[kind] + lane));
  const int step = static_cast<int>(gridDim.x) * Row::kRows;
  for (int first = static_cast<int>(blockIdx.x) * Row::kRows; first < shape.rows; first += kAhead * step) {
    Floats values[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      values[k] = Row::of(shape, first + k * step).template load<Short>(x, kind);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      normalise<HeadSize, Layer>(values[k], shape.epsilon);
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) values[k].at[i] = values[k].at[i] * weight.at[i] + bias.at[i];
      const Row row = Row::of(shape, first + k * step);
      if (row.exists) *row.at(y, kind) = packed<Short>(values[k]);
    }
  }
}

/// A thread takes every gridDim.x-th group of rows, and always the same features of a head.
template <class Short, int HeadSize, bool Layer>
__global__ void __launch_bounds__(kThreads)
    head_norm_backward_kernel(const __grid_constant__ HeadNormShape shape,
                              const __grid_constant__ HeadRows<const Vector> d_y,
                              const __grid_constant__ HeadRows<const Vector> x,
                              const __grid_constant__ HeadRows<Vector> d_x, float* parts, int stride) {
  using Row = RowOfHead<HeadSize>;
  constexpr float kPerElement = 1.0f / HeadSize;
  constexpr int kSums = Layer ? 2 : 1;
  const int kind = static_cast<int>(blockIdx.y);
  const Floats weight = unpacked<Short>(__ldg(shape.weights[kind] + threadIdx.x % Row::kLanes));
  Floats sums[kSums] = {};
  for (int first = static_cast<int>(blockIdx.x) * Row::kRows; first < shape.rows;
       first += static_cast<int>(gridDim.x) * Row::kRows) {
    const Row row = Row::of(shape, first);
    Floats normalised = row.template load<Short>(x, kind), gradient = row.template load<Short>(d_y, kind);
    const float inverse = normalise<HeadSize, Layer>(normalised, shape.epsilon);
    float along = 0.0f, total = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      sums[0].at[i] += gradient.at[i] * normalised.at[i];
      if constexpr (Layer) sums[1].at[i] += gradient.at[i];
      gradient.at[i] *= weight.at[i];
      along += gradient.at[i] * normalised.at[i];
      if constexpr (Layer) total += gradient.at[i];
    }
    along = Row::sum(along) * kPerElement;
    if constexpr (Layer) total = Row::sum(total) * kPerElement;
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i)
      gradient.at[i] = inverse * (gradient.at[i] - total - along * normalised.at[i]);
    if (row.exists) *row.at(d_x, kind) = packed<Short>(gradient);
  }

  __shared__ float of_rows[kThreads][kVectorWidth];
  float* const part = parts + (int64_t{blockIdx.x} * 2 + kind) * kSums * stride;
#pragma unroll
  for (int which = 0; which < kSums; ++which) {
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) of_rows[threadIdx.x][i] = sums[which].at[i];
    __syncthreads();
    for (int feature = threadIdx.x; feature < stride; feature += kThreads) {
      float sum = 0.0f;
      for (int row = 0; feature < HeadSize && row < Row::kRows; ++row)
        sum += of_rows[row * Row::kLanes + feature / kVectorWidth][feature % kVectorWidth];
      part[which * stride + feature] = sum;
    }
    __syncthreads();
  }
}

/// Calls launch(Short(), head size as a constant, layer as a constant).
template <class Launch>
void with_variant(const HeadNormShape& shape, Launch launch) {
  with_type(shape.type, [&](auto type) {
    const auto with_size = [&](auto size) {
      if (shape.layer) {
        launch(type, size, std::true_type());
      } else {
        launch(type, size, std::false_type());
      }
    };
    if (shape.head_size == 32) {
      with_size(std::integral_constant<int, 32>());
    } else {
      with_size(std::integral_constant<int, 64>());
    }
  });
}

/// How many thread blocks share the rows of a kind.
int blocks_for(const HeadNormShape& shape, int processors) {
  const int64_t groups = gpu::divided_up(shape.rows, kThreads * kVectorWidth / shape.head_size);
  return static_cast<int>(std::min<int64_t>(groups, kBlocksAProcessor * processors));
}

}  // namespace

void head_norm_forward(const HeadNormShape& shape, const HeadRows<const Vector>& x, const HeadRows<Vector>& y,
                       cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(blocks_for(shape, gpu::multiprocessors())), 2);
  with_variant(shape, [&](auto type, auto size, auto layer) {
    gpu::launch("head_norm_forward_kernel",
                head_norm_forward_kernel<decltype(type), decltype(size)::value, decltype(layer)::value>,
                blocks, kThreads, 0, stream, shape, x, y);
  });
}

int head_norm_backward_parts(const HeadNormShape& shape, int processors) {
  return blocks_for(shape, processors);
}

void head_norm_backward(const HeadNormShape& shape, const HeadRows<const Vector>& d_y,
                        const HeadRows<const Vector>& x, const HeadRows<Vector>& d_x, float* parts,
                        int part_count, int stride, cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(part_count), 2);
  with_variant(shape, [&](auto type, auto size, auto layer) {
    gpu::launch("head_norm_backward_kernel",
                head_norm_backward_kernel<decltype(type), decltype(size)::value, decltype(layer)::value>,
                blocks, kThreads, 0, stream, shape, d_y, x, d_x, parts, stride);
  });
}

}  // namespace adtrain::kernels
