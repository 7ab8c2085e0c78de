#include "base/Launch.cuh"
#include "kernels/norm/NormKernels.h"
#include "kernels/primitives/EarlyStart.cuh"
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

/// Replaces x by the sum of x and dropout(product + bias), rounded, as the backward pass will read it.
template <class Short, int kLanes, int kVectors>
__device__ void add_product(const InputNormForward& call, const RowShare<kLanes, kVectors>& share,
                            const RowShare<kLanes, kVectors>& columns, Vector (&x)[kVectors]) {
  const Dropout dropout(call.dropout);
  Vector product[kVectors], bias[kVectors];
  unsigned keep[kVectors];
  share.load(call.product, product);
  share.load(dropout, keep);
  columns.load(call.bias, bias);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    Floats sum = unpacked<Short>(x[v]), added = unpacked<Short>(product[v]);
    const Floats offset = unpacked<Short>(bias[v]);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) added.at[i] += offset.at[i];
    if (dropout.drops()) dropout.apply(added, keep[v]);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) sum.at[i] += added.at[i];
    x[v] = packed<Short>(sum);
    if (share.has(v)) call.sum[share.place(v)] = x[v];
  }
}

/// Takes the mean of the row off the thread's elements, and returns it.
template <class Share, int kLanes, int kVectors>
__device__ float centre(const Share& share, float per_element, Floats (&row)[kVectors]) {
  float total[1] = {0};
#pragma unroll
  for (const Floats& vector : row) {
#pragma unroll
    for (const float value : vector.at) total[0] += value;
  }
  sum_over_row<Share, kLanes>(total, /*odd=*/true);
  const float mean = total[0] * per_element;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      if (share.has(v)) row[v].at[i] -= mean;
    }
  }
  return mean;
}

template <class Short, int kLanes, int kVectors, bool kOfSum, bool kLayer>
__global__ void __launch_bounds__(RowShare<kLanes, kVectors>::kThreads)
    input_norm_forward_kernel(const __grid_constant__ InputNormForward call) {
  let_next_kernel_start();
  await_kernels_ahead();
  using Share = RowShare<kLanes, kVectors>;
  const int vectors = call.shape.vectors();
  const int64_t row = int64_t{blockIdx.x} * Share::kGroups + threadIdx.x / kLanes;
  const Share share(row, call.shape.rows, vectors), columns(0, 1, vectors);
  const MatrixDropout of_none = {nullptr, 1};
  const Dropout of_input(kOfSum ? of_none : call.dropout);
  const float per_element = 1.0F / static_cast<float>(call.shape.width);

  Vector x[kVectors], weight[kVectors];
  unsigned keep[kVectors];
  share.load_awaited(call.x, x);
  share.load(of_input, keep);
  columns.load(call.weight, weight);
  if constexpr (kOfSum) add_product<Short>(call, share, columns, x);

  Floats kept[kVectors];
  drop<Short>(of_input, x, keep, kept);
  [[maybe_unused]] float mean = 0;
  if constexpr (kLayer) mean = centre<Share, kLanes>(share, per_element, kept);
  float squares[1] = {0};
#pragma unroll
  for (const Floats& vector : kept) {
#pragma unroll
    for (const float value : vector.at) squares[0] += value * value;
  }
  sum_over_row<Share, kLanes>(squares, /*odd=*/false);
  const float inverse = rsqrtf(squares[0] * per_element + call.epsilon);
  [[maybe_unused]] Vector norm_bias[kVectors];
  if constexpr (kLayer) columns.load(call.norm_bias, norm_bias);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const Floats scale = unpacked<Short>(weight[v]);
    if constexpr (kLayer) {  // as the backward pass computes it again
      const Floats offset = unpacked<Short>(norm_bias[v]);
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) {
        const float normalised = kept[v].at[i] * inverse;
        kept[v].at[i] = normalised * scale.at[i] + offset.at[i];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) kept[v].at[i] *= inverse * scale.at[i];
    }
    if (share.has(v)) call.y[share.place(v)] = packed<Short>(kept[v]);
  }
  if constexpr (kLayer) {
    if (share.has(0) && threadIdx.x % kLanes == 0) call.statistics[row] = {mean, inverse};
  }
}

/// What the backward pass reads of a row ahead of its use, as it lies in memory: unpacking would wait for it.
/// Zeros beyond the last row.
template <class Short, int kLanes, int kVectors, bool kLayer>
struct BackwardRow {
  Vector x[kVectors], residual[kVectors];
  Vector d_y[kVectors];  ///< its first term
  unsigned keep[kVectors];
  float2 statistics = {0, 0};

  __device__ void load(const InputNormBackward& call, const Dropout& dropout, int64_t row) {
    const int vectors = call.shape.vectors();
    const RowShare<kLanes, kVectors> share(row, call.shape.rows, vectors);
    share.load(call.x, x);
    share.load(call.d_y, d_y);
    share.load(dropout, keep);
    if constexpr (kLayer) statistics = row < call.shape.rows ? __ldg(call.statistics + row) : float2{0, 0};
    if (call.residual_rows == call.length) return share.load(call.residual, residual);  // without divisions
    const int64_t place = row % call.length - (call.length - call.residual_rows);
    const bool has_residual = row < call.shape.rows && place >= 0;
    const int64_t own = has_residual ? row / call.length * call.residual_rows + place : 0;
    const RowShare<kLanes, kVectors> of_residual(own, has_residual ? own + 1 : 0, vectors);
    of_residual.load(call.residual, residual);
  }

  /// The gradient of y. `row`: the same as before.
  __device__ void add_terms(const InputNormBackward& call, int64_t row, Floats (&sums)[kVectors]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) sums[v] = unpacked<Short>(d_y[v]);
    for (int term = 1; term < call.terms; ++term) {
      const int vectors = call.shape.vectors();
      Vector added[kVectors];
      RowShare<kLanes, kVectors>(row, call.shape.rows, vectors)
          .load(call.d_y + term * call.shape.rows * vectors, added);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const Floats gradient = unpacked<Short>(added[v]);
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) sums[v].at[i] += gradient.at[i];
      }
    }
  }
};

/// The gradient of RMSNorm's input, where `row` is that input and becomes the normalised row. With n = row /
/// deviation: d_row = (g − n · mean(g · n)) / deviation, g = d_y · weight.
template <class Share, int kLanes, class Short, int kVectors>
__device__ void rms_backward(const Floats (&d_y)[kVectors], const Vector (&weight)[kVectors],
                             float per_element, float epsilon, bool odd, Floats (&row)[kVectors],
                             Floats (&d_row)[kVectors]) {
  float along[2] = {0, 0};  // sums of row² and of row · gradient
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const Floats scale = unpacked<Short>(weight[v]);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      along[0] += row[v].at[i] * row[v].at[i];
      along[1] += row[v].at[i] * d_y[v].at[i] * scale.at[i];
    }
  }
  sum_over_row<Share, kLanes>(along, odd);
  const float inverse = rsqrtf(along[0] * per_element + epsilon);
  const float slope = along[1] * per_element * inverse * inverse;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const Floats scale = unpacked<Short>(weight[v]);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      d_row[v].at[i] = inverse * (d_y[v].at[i] * scale.at[i] - row[v].at[i] * slope);
      row[v].at[i] *= inverse;
    }
  }
}

/// The same of LayerNorm: n = (row − mean) / deviation, d_row = (g − mean(g) − n · mean(g · n)) / deviation.
template <class Share, int kLanes, class Short, int kVectors>
__device__ void layer_backward(const Floats (&d_y)[kVectors], const Vector (&weight)[kVectors],
                               float per_element, float2 statistics, bool odd, Floats (&row)[kVectors],
                               Floats (&d_row)[kVectors]) {
  const float mean = statistics.x, inverse = statistics.y;
  float along[2] = {0, 0};  // sums of gradient and of gradient · n
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const Floats scale = unpacked<Short>(weight[v]);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      row[v].at[i] = (row[v].at[i] - mean) * inverse;
      d_row[v].at[i] = d_y[v].at[i] * scale.at[i];
      along[0] += d_row[v].at[i];
      along[1] += d_row[v].at[i] * row[v].at[i];
    }
  }
  sum_over_row<Share, kLanes>(along, odd);
  const float along_ones = along[0] * per_element, along_row = along[1] * per_element;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i)
      d_row[v].at[i] = inverse * (d_row[v].at[i] - along_ones - row[v].at[i] * along_row);
  }
}

/// LayerNorm's threads have a sum more, and so have those that sum the residual; they would spill with fewer
/// registers.
template <bool kMoreSums>
constexpr int kMostThreads = kMoreSums ? 512 : kThreadsAtOnce;

/// While a thread works on a row, the loads of its next row are in flight.
template <class Short, int kLanes, int kVectors, bool kOfSum, bool kOfResidual, bool kLayer>
__global__ void __launch_bounds__(RowShare<kLanes, kVectors>::kThreads,
                                  resident_blocks<kLanes, kVectors, kMostThreads<kLayer || kOfResidual>>())
    input_norm_backward_kernel(const __grid_constant__ InputNormBackward call) {
  using Share = RowShare<kLanes, kVectors>;
  using Row = BackwardRow<Short, kLanes, kVectors, kLayer>;
  const int vectors = call.shape.vectors();
  const int64_t rows = call.shape.rows, step = int64_t{gridDim.x} * Share::kGroups;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const Dropout dropout(call.dropout);
  const bool of_product = kOfSum && call.d_product != nullptr;  // dropout, which is else of the norm's input
  const bool drops_input = dropout.drops() && !of_product;
  const float per_element = 1.0F / static_cast<float>(call.shape.width);

  const Share columns(0, 1, vectors);
  Vector weight[kVectors];
  columns.load(call.weight, weight);
  [[maybe_unused]] Vector norm_bias[kVectors];
  if constexpr (kLayer) columns.load(call.norm_bias, norm_bias);
  Floats d_weight[kVectors] = {}, d_norm_bias[kVectors] = {}, d_bias[kVectors] = {},
         of_residual[kVectors] = {};

  int64_t first = int64_t{blockIdx.x} * Share::kGroups;  // first of the block's rows
  Row ahead;
  ahead.load(call, dropout, first + group);
  for (bool odd = false; first < rows; first += step, odd = !odd) {
    const Share share(first + group, rows, vectors);
    const Row row = ahead;
    ahead.load(call, dropout, first + step + group);

    Floats d_y[kVectors], normalised[kVectors], d_row[kVectors];
    row.add_terms(call, first + group, d_y);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      normalised[v] = unpacked<Short>(row.x[v]);
      if (drops_input) dropout.apply(normalised[v], row.keep[v]);
    }
    if constexpr (kLayer) {
      layer_backward<Share, kLanes, Short>(d_y, weight, per_element, row.statistics, odd, normalised, d_row);
    } else {
      rms_backward<Share, kLanes, Short>(d_y, weight, per_element, call.epsilon, odd, normalised, d_row);
    }

#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Floats residual = unpacked<Short>(row.residual[v]);
      Floats& d_x = d_row[v];
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) {
        d_weight[v].at[i] += d_y[v].at[i] * normalised[v].at[i];
        if constexpr (kLayer) d_norm_bias[v].at[i] += d_y[v].at[i];
        if constexpr (kOfResidual) of_residual[v].at[i] += residual.at[i];
      }
      if (drops_input) dropout.apply(d_x, row.keep[v]);
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) d_x.at[i] += residual.at[i];
      if (share.has(v)) call.d_x[share.place(v)] = packed<Short>(d_x);
      if constexpr (kOfSum) {
        if (of_product) {
          dropout.apply(d_x, row.keep[v]);
          if (share.has(v)) call.d_product[share.place(v)] = packed<Short>(d_x);
        }
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) d_bias[v].at[i] += d_x.at[i];
      }
      if constexpr (kLayer) {
        if (call.y != nullptr && share.has(v)) {
          const Floats scale = unpacked<Short>(weight[v]), offset = unpacked<Short>(norm_bias[v]);
          Floats y;
#pragma unroll
          for (int i = 0; i < kVectorWidth; ++i) y.at[i] = normalised[v].at[i] * scale.at[i] + offset.at[i];
          call.y[share.place(v)] = packed<Short>(y);
        }
      }
    }
  }
  constexpr int kSums = 1 + (kOfSum ? 1 : 0) + (kLayer ? 1 : 0);
  float* part = call.parts + int64_t{blockIdx.x} * kSums * call.stride;
  const auto put = [&](const Floats(&sums)[kVectors]) {
    put_part<kLanes, kVectors>(sums, call.shape.width, call.stride, part);
    part += call.stride;
  };
  if constexpr (kOfSum) put(d_bias);
  put(d_weight);
  if constexpr (kLayer) put(d_norm_bias);
  if constexpr (kOfResidual) {
    const int width = call.shape.width;
    put_part<kLanes, kVectors>(of_residual, width, width, call.residual_parts + int64_t{blockIdx.x} * width);
  }
}

/// Calls launch(value) with a compile-time constant.
template <class Launch>
void with_constant(bool value, Launch launch) {
  if (value) {
    launch(std::true_type());
  } else {
    launch(std::false_type());
  }
}

/// Calls launch(of_sum, layer) with compile-time constants.
template <class Launch>
void with_kind(bool of_sum, bool layer, Launch launch) {
  with_constant(of_sum, [&](auto constant_sum) {
    with_constant(layer, [&](auto constant_layer) { launch(constant_sum, constant_layer); });
  });
}

}  // namespace

void input_norm_forward(const InputNormForward& call, cudaStream_t stream) {
  // One that starts early reads x behind its wait, but products and dropout's mask as constants, whose
  // writers must have ended before it starts.
  const bool waits = call.product == nullptr && call.dropout.keep == nullptr;
  launch_forward(call.shape, [&](auto type, auto lanes, auto vectors, unsigned blocks, int threads) {
    with_kind(call.product != nullptr, call.norm_bias != nullptr, [&](auto of_sum, auto layer) {
      launch_early_where(waits, "input_norm_forward_kernel",
                         input_norm_forward_kernel<decltype(type), lanes, vectors, of_sum, layer>, blocks,
                         threads, 0, stream, call);
    });
  });
}

int input_norm_backward_parts(const MatrixShape& shape, bool more_sums, int processors) {
  return more_sums ? backward_blocks<kMostThreads<true>>(shape, processors)
                   : backward_blocks<kMostThreads<false>>(shape, processors);
}

void input_norm_backward(const InputNormBackward& call, cudaStream_t stream) {
  launch_backward(
      call.shape, call.part_count, [&](auto type, auto lanes, auto vectors, unsigned blocks, int threads) {
        with_kind(call.of_sum, call.norm_bias != nullptr, [&](auto of_sum, auto layer) {
          with_constant(of_sum && call.residual_parts != nullptr, [&](auto of_residual) {
            constexpr bool kOfResidual = of_sum && of_residual;
            gpu::launch(
                "input_norm_backward_kernel",
                input_norm_backward_kernel<decltype(type), lanes, vectors, of_sum, kOfResidual, layer>,
                blocks, threads, 0, stream, call);
          });
        });
      });
}

}  // namespace adtrain::kernels
