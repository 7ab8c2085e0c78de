#include "base/Launch.cuh"
#include "kernels/norm/NormKernels.h"
#include "kernels/primitives/RowShare.cuh"

namespace adtrain::kernels {
namespace {

/// The thread's elements of a row after dropout.
template <class Short, int kVectors>
__device__ void drop(const Dropout& dropout, const Vector (&x)[kVectors], const unsigned (&keep)[kVectors],
                     Floats (&kept)[kVectors]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    kept[v] = unpacked<Short>(x[v]);
    if (dropout.drops()) dropout.apply(kept[v], keep[v]);
  }
}

/// Replaces x by the sum of x, product and bias, rounded, as the backward pass will read it.
template <class Short, int kLanes, int kVectors>
__device__ void add_product(const RmsNormForward& call, const RowShare<kLanes, kVectors>& share,
                            const RowShare<kLanes, kVectors>& columns, Vector (&x)[kVectors]) {
  Vector product[kVectors], bias[kVectors];
  share.load(call.product, product);
  columns.load(call.bias, bias);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    Floats sum = unpacked<Short>(x[v]);
    const Floats added = unpacked<Short>(product[v]), offset = unpacked<Short>(bias[v]);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) sum.at[i] += added.at[i] + offset.at[i];
    x[v] = packed<Short>(sum);
    if (share.has(v)) call.sum[share.place(v)] = x[v];
  }
}

template <class Short, int kLanes, int kVectors, bool kOfSum>
__global__ void __launch_bounds__(RowShare<kLanes, kVectors>::kThreads)
    rms_norm_forward_kernel(const __grid_constant__ RmsNormForward call) {
  using Share = RowShare<kLanes, kVectors>;
  const int vectors = call.shape.vectors();
  const int64_t row = int64_t{blockIdx.x} * Share::kGroups + threadIdx.x / kLanes;
  const Share share(row, call.shape.rows, vectors), columns(0, 1, vectors);
  const Dropout dropout(call.dropout);

  Vector x[kVectors], weight[kVectors];
  unsigned keep[kVectors];
  share.load(call.x, x);
  share.load(dropout, keep);
  columns.load(call.weight, weight);
  if constexpr (kOfSum) add_product<Short>(call, share, columns, x);

  Floats kept[kVectors];
  drop<Short>(dropout, x, keep, kept);
  float squares[1] = {0};
#pragma unroll
  for (const Floats& vector : kept) {
#pragma unroll
    for (const float value : vector.at) squares[0] += value * value;
  }
  sum_over_row<Share, kLanes>(squares, /*odd=*/false);
  const float inverse = rsqrtf(squares[0] / static_cast<float>(call.shape.width) + call.epsilon);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const Floats scale = unpacked<Short>(weight[v]);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) kept[v].at[i] *= inverse * scale.at[i];
    if (share.has(v)) call.y[share.place(v)] = packed<Short>(kept[v]);
  }
}

/// What the backward pass reads of a row; zeros beyond the last row.
template <class Short, int kLanes, int kVectors>
struct BackwardRow {
  Vector x[kVectors], residual[kVectors];
  Floats d_y[kVectors];
  unsigned keep[kVectors];

  __device__ void load(const RmsNormBackward& call, const Dropout& dropout, int64_t row) {
    const int vectors = call.shape.vectors();
    const RowShare<kLanes, kVectors> share(row, call.shape.rows, vectors);
    share.load(call.x, x);
    share.load(dropout, keep);
#pragma unroll
    for (Floats& vector : d_y) vector = {};
    for (int term = 0; term < call.terms; ++term) {
      Vector added[kVectors];
      share.load(call.d_y + term * call.shape.rows * vectors, added);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const Floats gradient = unpacked<Short>(added[v]);
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) d_y[v].at[i] += gradient.at[i];
      }
    }

    const int64_t place = row % call.length - (call.length - call.residual_rows);
    const bool has_residual = row < call.shape.rows && place >= 0;
    const int64_t own = has_residual ? row / call.length * call.residual_rows + place : 0;
    const RowShare<kLanes, kVectors> of_residual(own, has_residual ? own + 1 : 0, vectors);
    of_residual.load(call.residual, residual);
  }
};

/// While a thread works on a row, the loads of its next row are in flight. With n = dropout(x) / deviation:
///
///     d_x = dropout'((g − n · mean(g · n)) / deviation) + residual,  g = d_y · weight
template <class Short, int kLanes, int kVectors, bool kOfSum>
__global__ void __launch_bounds__(RowShare<kLanes, kVectors>::kThreads, resident_blocks<kLanes, kVectors>())
    rms_norm_backward_kernel(const __grid_constant__ RmsNormBackward call) {
  using Share = RowShare<kLanes, kVectors>;
  using Row = BackwardRow<Short, kLanes, kVectors>;
  const int vectors = call.shape.vectors();
  const int64_t rows = call.shape.rows, step = int64_t{gridDim.x} * Share::kGroups;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const Dropout dropout(call.dropout);
  const float per_element = 1.0F / static_cast<float>(call.shape.width);

  Vector weight[kVectors];
  Share(0, 1, vectors).load(call.weight, weight);
  Floats d_weight[kVectors] = {}, d_bias[kVectors] = {};

  int64_t first = int64_t{blockIdx.x} * Share::kGroups;  // first of the block's rows
  Row ahead;
  ahead.load(call, dropout, first + group);
  for (bool odd = false; first < rows; first += step, odd = !odd) {
    const Share share(first + group, rows, vectors);
    const Row row = ahead;
    ahead.load(call, dropout, first + step + group);

    Floats kept[kVectors];
    drop<Short>(dropout, row.x, row.keep, kept);
    float along[2] = {0, 0};  // sums of x² and of x · gradient
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Floats scale = unpacked<Short>(weight[v]);
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) {
        along[0] += kept[v].at[i] * kept[v].at[i];
        along[1] += kept[v].at[i] * row.d_y[v].at[i] * scale.at[i];
      }
    }
    sum_over_row<Share, kLanes>(along, odd);
    const float inverse = rsqrtf(along[0] * per_element + call.epsilon);
    const float slope = along[1] * per_element * inverse * inverse;

#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Floats scale = unpacked<Short>(weight[v]), residual = unpacked<Short>(row.residual[v]);
      Floats d_x;
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) {
        d_x.at[i] = inverse * (row.d_y[v].at[i] * scale.at[i] - kept[v].at[i] * slope);
        d_weight[v].at[i] += row.d_y[v].at[i] * kept[v].at[i] * inverse;
      }
      if (dropout.drops()) dropout.apply(d_x, row.keep[v]);
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) {
        d_x.at[i] += residual.at[i];
        if constexpr (kOfSum) d_bias[v].at[i] += d_x.at[i];
      }
      if (share.has(v)) call.d_x[share.place(v)] = packed<Short>(d_x);
    }
  }
  constexpr int kSums = kOfSum ? 2 : 1;
  float* part = call.parts + int64_t{blockIdx.x} * kSums * call.stride;
  if constexpr (kOfSum) put_part<kLanes, kVectors>(d_bias, call.shape.width, call.stride, part);
  put_part<kLanes, kVectors>(d_weight, call.shape.width, call.stride, part + (kSums - 1) * call.stride);
}

/// Calls launch(of_sum) with a compile-time constant.
template <class Launch>
void with_sum(bool of_sum, Launch launch) {
  if (of_sum) {
    launch(std::true_type());
  } else {
    launch(std::false_type());
  }
}

}  // namespace

void rms_norm_forward(const RmsNormForward& call, cudaStream_t stream) {
  launch_forward(call.shape, [&](auto type, auto lanes, auto vectors, unsigned blocks, int threads) {
    with_sum(call.product != nullptr, [&](auto of_sum) {
      gpu::launch("rms_norm_forward_kernel", rms_norm_forward_kernel<decltype(type), lanes, vectors, of_sum>,
                  blocks, threads, 0, stream, call);
    });
  });
}

int rms_norm_backward_parts(const MatrixShape& shape, int processors) {
  return backward_blocks(shape, processors);
}

void rms_norm_backward(const RmsNormBackward& call, cudaStream_t stream) {
  launch_backward(call.shape, call.part_count,
                  [&](auto type, auto lanes, auto vectors, unsigned blocks, int threads) {
                    with_sum(call.of_sum, [&](auto of_sum) {
                      gpu::launch("rms_norm_backward_kernel",
                                  rms_norm_backward_kernel<decltype(type), lanes, vectors, of_sum>, blocks,
                                  threads, 0, stream, call);
                    });
                  });
}

}  // namespace adtrain::kernels
