#include <algorithm>
#include <type_traits>

#include "base/Cuda.h"
#include "model/kernels/RowVectors.cuh"

namespace adtrain::kernels {
namespace {

/// kLanes threads have a row, kVectors of its vectors each.
template <int kLanes, int kVectors>
struct RowShare {
  static_assert(kWarp % kLanes == 0 || kLanes % kWarp == 0, "part of a warp, or whole warps");
  static constexpr int kThreads = kLanes <= kWarp ? 128 : kVectors == 1 ? 2 * kLanes : kLanes;  ///< a block
  static constexpr int kGroups = kThreads / kLanes;  ///< rows that a block has at once

  /// Of nothing, for rows beyond the end.
  __device__ RowShare(int64_t row, int64_t rows, int vectors) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    first = row * vectors + lane;
    count = row < rows ? (vectors - lane + kLanes - 1) / kLanes : 0;
  }

  __device__ bool has(int v) const { return v < count; }
  __device__ int64_t place(int v) const { return first + v * kLanes; }
  __device__ void load(const Vector* matrix, Vector (&to)[kVectors]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) to[v] = has(v) ? __ldg(matrix + place(v)) : Vector{0, 0, 0, 0};
  }
  __device__ void load(const Dropout& dropout, unsigned (&keep)[kVectors]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) keep[v] = has(v) ? dropout.kept(place(v)) : 0;
  }

  int64_t first;
  int count;
};

/// Each of the values over the lanes that share a row, for all of them. All threads of the block must come
/// here, with `odd` false and true by turns: a warp that is one turn ahead must not write over what another
/// one still reads.
template <class Share, int kLanes, int kCount>
__device__ void sum_over_row(float (&values)[kCount], bool odd) {
#pragma unroll
  for (int distance = kLanes < kWarp ? kLanes / 2 : kWarp / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (float& value : values) value += __shfl_xor_sync(0xffffffffU, value, distance);
  }
  if constexpr (kLanes > kWarp) {
    constexpr int kWarps = kLanes / kWarp;
    __shared__ float of_warps[2][Share::kGroups][kWarps][kCount];
    const int group = static_cast<int>(threadIdx.x) / kLanes,
              warp = static_cast<int>(threadIdx.x) % kLanes / kWarp;
    if (threadIdx.x % kWarp == 0) {
      for (int i = 0; i < kCount; ++i) of_warps[odd][group][warp][i] = values[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = 0;
      for (const auto& of_warp : of_warps[odd][group]) values[i] += of_warp[i];
    }
  }
}

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

/// What the backward pass reads of a row; nothing but zeros beyond the end.
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

/// Adds up what the groups of a block summed over their rows, in the order of the groups: `to` (stride),
/// zeros behind the width.
template <int kLanes, int kVectors>
__device__ void put_part(const Floats (&sums)[kVectors], int width, int stride, float* to) {
  using Share = RowShare<kLanes, kVectors>;
  __shared__ float of_groups[Share::kGroups][kVectors][kVectorWidth][kLanes];
  __syncthreads();  // all have read the sums before
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      of_groups[threadIdx.x / kLanes][v][i][threadIdx.x % kLanes] = sums[v].at[i];
    }
  }
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < stride; column += Share::kThreads) {
    const int vector = column / kVectorWidth;
    float sum = 0;
    for (int group = 0; column < width && group < Share::kGroups; ++group) {
      sum += of_groups[group][vector / kLanes][column % kVectorWidth][vector % kLanes];
    }
    to[column] = sum;
  }
}

/// Blocks that a multiprocessor holds at once: a thread's sums for three parameters stay in its registers.
template <int kLanes, int kVectors>
constexpr int resident_blocks() {
  constexpr int kThreadsAtOnce = kVectors == 1 ? 768 : 256;
  return kThreadsAtOnce / RowShare<kLanes, kVectors>::kThreads;
}

/// While a row is being worked on the next one is on its way.
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

  int64_t first = int64_t{blockIdx.x} * Share::kGroups;  // of the block's rows
  BackwardRow<kLanes, kVectors> ahead;
  ahead.load(call, dropout, first + group);
  for (bool odd = false; first < rows; first += step, odd = !odd) {
    const Share share(first + group, rows, vectors);
    const BackwardRow<kLanes, kVectors> row = ahead;
    ahead.load(call, dropout, first + step + group);

    float along[2] = {0, 0};  // ones, and the row
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

template <int kNumber>
using Constant = std::integral_constant<int, kNumber>;

/// Calls launch(lanes, vectors a lane), both Constants, for rows of this width. In the forward pass no warp
/// waits for another one but in very wide rows.
template <class Launch>
void with_forward_share(const MatrixShape& shape, Launch launch) {
  const int vectors = shape.vectors();
  if (vectors <= 8) {
    launch(Constant<8>(), Constant<1>());
  } else if (vectors <= kWarp) {
    launch(Constant<kWarp>(), Constant<1>());
  } else if (vectors <= 2 * kWarp) {
    launch(Constant<kWarp>(), Constant<2>());
  } else if (vectors <= 3 * kWarp) {
    launch(Constant<kWarp>(), Constant<3>());
  } else if (vectors <= 4 * kWarp) {
    launch(Constant<kWarp>(), Constant<4>());
  } else {
    launch(Constant<4 * kWarp>(), Constant<4>());
  }
}

/// In the backward pass a thread has three sums for each of its columns: of more than one vector they would
/// leave the registers.
template <class Launch>
void with_backward_share(const MatrixShape& shape, Launch launch) {
  const int vectors = shape.vectors();
  if (vectors <= 8) {
    launch(Constant<8>(), Constant<1>());
  } else if (vectors <= kWarp) {
    launch(Constant<kWarp>(), Constant<1>());
  } else if (vectors <= 2 * kWarp) {
    launch(Constant<2 * kWarp>(), Constant<1>());
  } else if (vectors <= 3 * kWarp) {
    launch(Constant<3 * kWarp>(), Constant<1>());
  } else if (vectors <= 4 * kWarp) {
    launch(Constant<4 * kWarp>(), Constant<1>());
  } else {
    launch(Constant<4 * kWarp>(), Constant<4>());
  }
}
static_assert(kMaxNormWidth == 4 * kWarp * 4 * kVectorWidth, "the widest shares");

template <class Share>
int64_t blocks_of_rows(const MatrixShape& shape) {
  return (shape.rows + Share::kGroups - 1) / Share::kGroups;
}

}  // namespace

void norm_forward(const NormForward& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) {
    with_forward_share(call.shape, [&](auto lanes, auto vectors) {
      using Share = RowShare<lanes, vectors>;
      const auto blocks = static_cast<unsigned>(blocks_of_rows<Share>(call.shape));
      norm_forward_kernel<decltype(type), lanes, vectors><<<blocks, Share::kThreads, 0, stream>>>(call);
    });
  });
  gpu::check(cudaGetLastError(), "the launch of the kernel that adds, drops and normalises rows");
}

int norm_backward_parts(const MatrixShape& shape, int processors) {
  int parts = 0;
  with_backward_share(shape, [&](auto lanes, auto vectors) {
    const int at_once = processors * resident_blocks<lanes, vectors>();
    parts = static_cast<int>(std::min<int64_t>(blocks_of_rows<RowShare<lanes, vectors>>(shape), at_once));
  });
  return parts;
}

void norm_backward(const NormBackward& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) {
    with_backward_share(call.shape, [&](auto lanes, auto vectors) {
      norm_backward_kernel<decltype(type), lanes, vectors>
          <<<static_cast<unsigned>(call.part_count), RowShare<lanes, vectors>::kThreads, 0, stream>>>(call);
    });
  });
  gpu::check(cudaGetLastError(), "the launch of the kernel for the gradients of normalised rows");
}

}  // namespace adtrain::kernels
