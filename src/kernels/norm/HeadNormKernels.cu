#include <algorithm>
#include <type_traits>

#include "base/Launch.cuh"
#include "kernels/norm/HeadNorm.cuh"
#include "kernels/norm/HeadNormKernels.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/RowVectors.cuh"

namespace adtrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksAProcessor = 4;  ///< of each kind; a thread block takes one group of rows after another
constexpr int kAhead = 4;             ///< groups of rows in flight in the forward pass

/// The lanes of a row, each with one vector of it. Lanes without a row take part in their sums. The order of
/// rows is that of memory, by token and head.
template <int HeadSize>
struct RowOfHead {
  static constexpr int kLanes = HeadLanes<HeadSize>::kCount, kRows = kThreads / kLanes;

  const HeadNormShape& shape;
  int token, head, lane;

  /// The thread's first row.
  static __device__ RowOfHead first(const HeadNormShape& shape) {
    const int thread = static_cast<int>(threadIdx.x);
    const int row = static_cast<int>(blockIdx.x) * kRows + thread / kLanes;
    return {shape, row / shape.heads, row % shape.heads, thread % kLanes};
  }
  /// How many tokens further its next row is, of the same head: see blocks_for().
  static __device__ int step(const HeadNormShape& shape) {
    return static_cast<int>(gridDim.x) / shape.heads * kRows;
  }

  __device__ bool exists(int after = 0) const { return token + after < shape.tokens; }
  template <class Value>
  __device__ Value* at(const HeadRows<Value>& rows, int kind, int after = 0) const {
    return rows.kinds[kind] + (token + after) * rows.of_token + head * rows.of_head + lane;
  }
  /// As it is in memory: loads wait for one another where a conversion stands between them.
  __device__ Vector load(const HeadRows<const Vector>& rows, int kind, int after = 0) const {
    return exists(after) ? __ldg(at(rows, kind, after)) : Vector{};
  }
};

template <class Short, int HeadSize, bool Layer>
__global__ void __launch_bounds__(kThreads)
    head_norm_forward_kernel(const __grid_constant__ HeadNormShape shape,
                             const __grid_constant__ HeadRows<const Vector> x,
                             const __grid_constant__ HeadRows<Vector> y) {
  using Row = RowOfHead<HeadSize>;
  let_next_kernel_start();
  const int kind = static_cast<int>(blockIdx.y), step = Row::step(shape);
  Row row = Row::first(shape);
  const Floats weight = unpacked<Short>(__ldg(shape.weights[kind] + row.lane));
  Floats bias = {};
  if constexpr (Layer) bias = unpacked<Short>(__ldg(shape.biases[kind] + row.lane));
  // All lanes of a warp go on together, those of a later token too: see RowOfHead.
  for (int first = static_cast<int>(blockIdx.x) * Row::kRows / shape.heads; first < shape.tokens;
       first += kAhead * step, row.token += kAhead * step) {
    Vector loaded[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) loaded[k] = row.load(x, kind, k * step);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const Vector normed = normed_head<Short, HeadSize, Layer>(loaded[k], weight, bias, shape.epsilon);
      if (row.exists(k * step)) *row.at(y, kind, k * step) = normed;
    }
  }
}

/// A thread always takes the same features of one head.
template <class Short, int HeadSize, bool Layer>
__global__ void __launch_bounds__(kThreads)
    head_norm_backward_kernel(const __grid_constant__ HeadNormShape shape,
                              const __grid_constant__ HeadRows<const Vector> d_y,
                              const __grid_constant__ HeadRows<const Vector> x,
                              const __grid_constant__ HeadRows<Vector> d_x, float* parts, int stride) {
  using Row = RowOfHead<HeadSize>;
  constexpr float kPerElement = 1.0f / HeadSize;
  constexpr int kSums = Layer ? 2 : 1;
  const int kind = static_cast<int>(blockIdx.y), step = Row::step(shape);
  Row row = Row::first(shape);
  const Floats weight = unpacked<Short>(__ldg(shape.weights[kind] + row.lane));
  Floats sums[kSums] = {};
  for (int first = static_cast<int>(blockIdx.x) * Row::kRows / shape.heads; first < shape.tokens;
       first += step, row.token += step) {
    const Vector loaded = row.load(x, kind), loaded_gradient = row.load(d_y, kind);
    Floats normalised = unpacked<Short>(loaded), gradient = unpacked<Short>(loaded_gradient);
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
    along = HeadLanes<HeadSize>::sum(along) * kPerElement;
    if constexpr (Layer) total = HeadLanes<HeadSize>::sum(total) * kPerElement;
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i)
      gradient.at[i] = inverse * (gradient.at[i] - total - along * normalised.at[i]);
    if (row.exists()) *row.at(d_x, kind) = packed<Short>(gradient);
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
      for (int other = 0; feature < HeadSize && other < Row::kRows; ++other)
        sum += of_rows[other * Row::kLanes + feature / kVectorWidth][feature % kVectorWidth];
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

/// How many thread blocks share the rows of a kind: a multiple of the heads, so that a thread's rows are of
/// one head.
int blocks_for(const HeadNormShape& shape, int processors) {
  const int rows = kThreads * kVectorWidth / shape.head_size;
  const int64_t groups = gpu::divided_up(int64_t{shape.tokens} * shape.heads, rows);
  const int64_t wanted = std::min<int64_t>(groups, int64_t{kBlocksAProcessor} * processors);
  return static_cast<int>(gpu::divided_up(wanted, shape.heads)) * shape.heads;
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
