#include "kernels/primitives/ByteInstructions.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/quantised/ApartColumns.cuh"
#include "kernels/quantised/OutlierKernels.h"

/// LLM.int8's product of few rows, bound by the weights' way from memory. A thread block computes 16 features
/// of all rows; its warps share the columns that are summed over, 64 at once. A lane loads 16 neighbouring
/// codes of a feature, and of its rows, which are two products' operands: what is summed over may be in any
/// order. The first codes of weights are loaded before the kernels have ended that round the rows.
namespace adtrain::kernels {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp, kFeatures = 16;
constexpr int kOfLane = sizeof(uint4), kColumns = 4 * kOfLane;  ///< of a warp at once
constexpr int kAhead = 4;  ///< times a warp's columns, whose weights are loaded at once

constexpr int kEights = kFeatures / 8;
constexpr uint4 kZeros = {0, 0, 0, 0};

/// The sums of this warp's columns, of eight features each.
__device__ void multiply(const OutlierProduct& job, const int8_t* codes, WholeSums (&sums)[kEights]) {
  const QuantisedProduct& product = job.product;
  const int columns = static_cast<int>(product.weights.in_features), lane = threadIdx.x % kWarp,
            warp = threadIdx.x / kWarp, row = lane / 4, own = kOfLane * (lane % 4);
  const int64_t feature = int64_t{blockIdx.x} * kFeatures + row;
  const auto* const weights = static_cast<const int8_t*>(product.weights.codes) + feature * columns;
  const auto of_row = [&](int number, int column) {
    const int8_t* const from = codes + int64_t{number} * columns + column;
    // Not by __ldg(), which the compiler may do before kernels ahead have written them.
    return number < product.rows && column < columns ? __ldcg(reinterpret_cast<const uint4*>(from)) : kZeros;
  };
  bool waits = true;
#pragma unroll 1
  for (int begin = warp * kColumns; begin < columns; begin += kAhead * kWarps * kColumns) {
    uint4 of_feature[kAhead][kEights];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int column = begin + i * kWarps * kColumns + own;
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const int8_t* const from = weights + int64_t{8 * eight} * columns + column;
        const bool exists = feature + 8 * eight < product.weights.out_features && column < columns;
        of_feature[i][eight] = exists ? __ldg(reinterpret_cast<const uint4*>(from)) : kZeros;
      }
    }
    if (waits) await_kernels_ahead();
    waits = false;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int column = begin + i * kWarps * kColumns + own;
      const uint4 first = of_row(row, column), second = of_row(row + 8, column);
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const uint4 right = of_feature[i][eight];
        multiply_add_bytes(sums[eight], {first.x, second.x, first.y, second.y}, right.x, right.y);
        multiply_add_bytes(sums[eight], {first.z, second.z, first.w, second.w}, right.z, right.w);
      }
    }
  }
  if (waits) await_kernels_ahead();
}

/// What the columns apart add to an element of the result.
template <class Short>
__device__ float sum_apart(const OutlierProduct& job, int row, int64_t feature) {
  const QuantisedWeights& weights = job.product.weights;
  const auto* const of_row = static_cast<const Short*>(job.product.input) + row * weights.in_features;
  const auto* const of_feature = static_cast<const int8_t*>(weights.codes) + feature * weights.in_features;
  const float scale = row_scale(weights, feature);
  const int count = *job.apart.count;
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < count; ++i) {
    const int column = job.apart.columns[i];
    const float weight = as_float(rounded_to<Short>(static_cast<float>(of_feature[column]) * scale));
    sum = fmaf(as_float(of_row[column]), weight, sum);
  }
  return sum;
}

template <class Short>
__global__ void __launch_bounds__(kThreads)
    outlier_rows_kernel(const __grid_constant__ OutlierProduct job, const int8_t* codes) {
  __shared__ int32_t of_warps[kWarps][kWarpTile][kFeatures];
  const QuantisedProduct& product = job.product;
  const int row = threadIdx.x / kFeatures, own = threadIdx.x % kFeatures;
  const int64_t feature = int64_t{blockIdx.x} * kFeatures + own;
  const bool exists = row < product.rows && feature < product.weights.out_features;
  const float of_codes = exists ? code_factor(product.weights, feature) : 0.0f,
              bias = exists ? bias_of<Short>(product, feature) : 0.0f;  // constant, as are the weights
  WholeSums sums[kEights] = {};
  multiply(job, codes, sums);
  const LanePlace place = lane_place();
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      of_warps[threadIdx.x / kWarp][place.row + 8 * (i / 2)][8 * eight + place.column + i % 2] =
          sums[eight].value[i];
    }
  }
  __syncthreads();
  if (!exists) return;
  int32_t sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += of_warps[warp][row][own];
  const float factor = of_codes * job.largest[row], more = bias + sum_apart<Short>(job, row, feature);
  float value = activated(product, fmaf(static_cast<float>(sum), factor, more));
  const int64_t element = row * product.weights.out_features + feature;
  if (product.sum != nullptr) value += as_float(static_cast<const Short*>(product.sum)[element]);
  static_cast<Short*>(product.output)[element] = rounded_to<Short>(value);
}

}  // namespace

void outlier_product_of_few_rows(const OutlierProduct& job, const int8_t* codes, cudaStream_t stream) {
  static_assert(kMostRowsTogether == kWarpTile && kWarpTile * kFeatures <= kThreads);
  const auto blocks = static_cast<unsigned>(gpu::divided_up(job.product.weights.out_features, kFeatures));
  with_type(job.product.type, [&](auto type) {
    launch_early("outlier_rows_kernel", outlier_rows_kernel<decltype(type)>, blocks, kThreads, 0, stream, job,
                 codes);
  });
}

}  // namespace adtrain::kernels
