#include "base/Launch.cuh"
#include "kernels/norm/NormKernels.h"
#include "kernels/primitives/RowShare.cuh"

namespace adtrain::kernels {
namespace {

template <class Short, int kLanes, int kVectors>
__global__ void __launch_bounds__(RowShare<kLanes, kVectors>::kThreads)
    norm_forward_kernel(const __grid_constant__ NormForward call) {
  using Share = RowShare<kLanes, kVectors>;
  const int vectors = call.shape.vectors();
  const int64_t row = int64_t{blockIdx.x} * Share::kGroups + threadIdx.x / kLanes;
  const Share share(row, call.shape.rows, vectors), columns(0, 1, vectors);
  const Dropout dropout(call.dropout);
  const float per_element = 1.0F / static_cast<float>(call.shape.width);

  Vector x[kVectors], product[kVectors], bias[kVectors];
  share.load(call.x, x);
  share.load(call.product, product);
  columns.load(call.bias, bias);
  unsigned keep[kVectors];
  share.load(dropout, keep);

  Floats sums[kVectors];
  float total[1] = {0};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    Floats branch = unpacked<Short>(product[v]);
    const Floats offset = unpacked<Short>(bias[v]), residual = unpacked<Short>(x[v]);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) branch.at[i] += offset.at[i];
    if (dropout.drops()) dropout.apply(branch, keep[v]);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      sums[v].at[i] = residual.at[i] + branch.at[i];
      if (share.has(v)) total[0] += sums[v].at[i];
    }
  }
  sum_over_row<Share, kLanes>(total, /*odd=*/false);
  const float mean = total[0] * per_element;

  float squares[1] = {0};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      sums[v].at[i] -= mean;
      if (share.has(v)) squares[0] += sums[v].at[i] * sums[v].at[i];
    }
  }
  sum_over_row<Share, kLanes>(squares, /*odd=*/true);
  const float inverse = rsqrtf(squares[0] * per_element + call.epsilon);

  Vector weight[kVectors], norm_bias[kVectors];
  columns.load(call.weight, weight);
  columns.load(call.norm_bias, norm_bias);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (!share.has(v)) continue;
    const Floats scale = unpacked<Short>(weight[v]), offset = unpacked<Short>(norm_bias[v]);
    Floats normalised, y;
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      normalised.at[i] = sums[v].at[i] * inverse;
      y.at[i] = normalised.at[i] * scale.at[i] + offset.at[i];
    }
    call.normalised[share.place(v)] = packed<Short>(normalised);
    call.y[share.place(v)] = packed<Short>(y);
  }
  if (share.has(0) && threadIdx.x % kLanes == 0) call.inverse_deviation[row] = inverse;
}

/// What the backward pass reads of a row; zeros beyond the last row.
template <int kLanes, int kVectors>
struct BackwardRow {
  Vector d_y[kVectors], normalised[kVectors];
  unsigned keep[kVectors];
  float inverse;

  __device__ void load(const NormBackward& call, const Dropout& dropout, int64_t row) {
    const RowShare<kLanes, kVectors> share(row, call.shape.rows, call.shape.vectors());
    share.load(call.d_y, d_y);
    share.load(call.normalised, normalised);
    share.load(dropout, keep);
    inverse = row < call.shape.rows ? __ldg(call.inverse_deviation + row) : 0;
  }
};

/// While a thread works on a row, the loads of its next row are in flight.
template <class Short, int kLanes, int kVectors>
__global__ void __launch_bounds__(RowShare<kLanes, kVectors>::kThreads, resident_blocks<kLanes, kVectors>())
    norm_backward_kernel(const __grid_constant__ NormBackward call) {
  using Share = RowShare<kLanes, kVectors>;
  const int vectors = call.shape.vectors();
  const int64_t rows = call.shape.rows, step = int64_t{gridDim.x} * Share::kGroups;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const Dropout dropout(call.dropout);
  const float per_element = 1.0F / static_cast<float>(call.shape.width);

  Vector weight[kVectors];
  Share(0, 1, vectors).load(call.weight, weight);
  Floats d_weight[kVectors] = {}, d_norm_bias[kVectors] = {}, d_bias[kVectors] = {};

  int64_t first = int64_t{blockIdx.x} * Share::kGroups;  // first of the block's rows
  BackwardRow<kLanes, kVectors> ahead;
  ahead.load(call, dropout, first + group);
  for (bool odd = false; first < rows; first += step, odd = !odd) {
    const Share share(first + group, rows, vectors);
    const BackwardRow<kLanes, kVectors> row = ahead;
    ahead.load(call, dropout, first + step + group);

    float along[2] = {0, 0};  // sums of gradient · 1 and of gradient · normalised
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Floats d_y = unpacked<Short>(row.d_y[v]), normalised = unpacked<Short>(row.normalised[v]),
                   scale = unpacked<Short>(weight[v]);
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) {
        const float gradient = d_y.at[i] * scale.at[i];
        along[0] += gradient;
        along[1] += gradient * normalised.at[i];
        d_weight[v].at[i] += d_y.at[i] * normalised.at[i];
        d_norm_bias[v].at[i] += d_y.at[i];
      }
    }
    sum_over_row<Share, kLanes>(along, odd);
    const float along_ones = along[0] * per_element, along_row = along[1] * per_element;

#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Floats d_y = unpacked<Short>(row.d_y[v]), normalised = unpacked<Short>(row.normalised[v]),
                   scale = unpacked<Short>(weight[v]);
      Floats d_sum;
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) {
        const float gradient = d_y.at[i] * scale.at[i];
        d_sum.at[i] = row.inverse * (gradient - along_ones - normalised.at[i] * along_row);
      }
      if (share.has(v)) call.d_x[share.place(v)] = packed<Short>(d_sum);
      if (dropout.drops()) {
        dropout.apply(d_sum, row.keep[v]);
        if (share.has(v)) call.d_product[share.place(v)] = packed<Short>(d_sum);
      }
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) d_bias[v].at[i] += d_sum.at[i];
    }
  }

  float* part = call.parts + int64_t{blockIdx.x} * 3 * call.stride;
  put_part<kLanes, kVectors>(d_bias, call.shape.width, call.stride, part);
  put_part<kLanes, kVectors>(d_weight, call.shape.width, call.stride, part + call.stride);
  put_part<kLanes, kVectors>(d_norm_bias, call.shape.width, call.stride, part + 2 * call.stride);
}

}  // namespace

void norm_forward(const NormForward& call, cudaStream_t stream) {
  launch_forward(call.shape, [&](auto type, auto lanes, auto vectors, unsigned blocks, int threads) {
    gpu::launch("norm_forward_kernel", norm_forward_kernel<decltype(type), lanes, vectors>, blocks, threads,
                0, stream, call);
  });
}

int norm_backward_parts(const MatrixShape& shape, int processors) {
  return backward_blocks(shape, processors);
}

void norm_backward(const NormBackward& call, cudaStream_t stream) {
  launch_backward(call.shape, call.part_count,
                  [&](auto type, auto lanes, auto vectors, unsigned blocks, int threads) {
                    gpu::launch("norm_backward_kernel", norm_backward_kernel<decltype(type), lanes, vectors>,
                                blocks, threads, 0, stream, call);
                  });
}

}  // namespace adtrain::kernels
