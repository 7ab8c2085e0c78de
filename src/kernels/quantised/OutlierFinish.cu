#include "base/Launch.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/quantised/ApartColumns.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/OutlierKernels.h"

/// What comes behind LLM.int8's product of whole numbers by a library.
namespace adtrain::kernels {
namespace {

constexpr int kThreads = 256;

/// A thread block has a tile of the result, and a warp 32 × 32 of what the columns apart add to it.
constexpr int kTileRows = 64, kTileFeatures = 128;
constexpr int kWarpRows = 32, kWarpFeatures = 32;

template <class Short>
struct alignas(16) FinishMemory {
  float sums[kTileRows][kTileFeatures + 4];
  ApartColumns<Short, kTileRows, kTileFeatures> apart;
};

/// Leaves the sums of the columns apart in the memory. A barrier must follow.
template <class Short>
__device__ void multiply_apart(const OutlierProduct& job, FinishMemory<Short>& memory, int first_row,
                               int first_feature, int columns) {
  constexpr int kTiles = kWarpRows / kWarpTile;
  const int warp = threadIdx.x / kWarp, row = warp % (kTileRows / kWarpRows) * kWarpRows,
            feature = warp / (kTileRows / kWarpRows) * kWarpFeatures;
  Sums sums[kTiles][kWarpFeatures / 8] = {};
  for (int first = 0; first < columns; first += kApartAtOnce) {
    if (first > 0) __syncthreads();
    memory.apart.template gather<kThreads>(job, first_row, first_feature, first, columns, threadIdx.x);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
      memory.apart.multiply(sums[i], row + kWarpTile * i, feature, columns - first);
  }
  const LanePlace place = lane_place();
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int k = 0; k < kWarpFeatures / 8; ++k) {
      float* const to = &memory.sums[row + kWarpTile * i + place.row][feature + 8 * k + place.column];
      const float(&all)[4] = sums[i][k].value;
      *reinterpret_cast<float2*>(to) = {all[0], all[1]};
      *reinterpret_cast<float2*>(to + 8 * (kTileFeatures + 4)) = {all[2], all[3]};
    }
  }
}

/// Four neighbouring features of a thread, in every eighth row of the tile.
template <class Short>
class FinishedSums {
  static constexpr int kAtOnce = 4, kOfRow = kTileFeatures / kAtOnce, kRowsAtOnce = kThreads / kOfRow,
                       kRows = kTileRows / kRowsAtOnce;

 public:
  __device__ FinishedSums(const OutlierProduct& job, const int32_t* sums, int first_row, int first_feature)
      : job_(job),
        from_(sums),
        within_(kAtOnce * (static_cast<int>(threadIdx.x) % kOfRow)),
        first_(static_cast<int>(threadIdx.x) / kOfRow),
        row_(first_row + first_),
        feature_(first_feature + within_) {
    const QuantisedWeights& weights = job.product.weights;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t feature = min(int64_t{feature_} + i, weights.out_features - 1);
      factor_[i] = code_factor(weights, feature);
      bias_[i] = bias_of<Short>(job.product, feature);
    }
  }
  /// Loads what is there before the columns apart are multiplied.
  __device__ void load() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (!has(i)) continue;
      const int32_t* const from = from_ + place(i);
      largest_[i] = job_.largest[row_ + kRowsAtOnce * i];
      if (whole()) {
        sums_[i] = __ldcs(reinterpret_cast<const int4*>(from));
      } else {
        const int64_t left = job_.product.weights.out_features - feature_;
        sums_[i] = {from[0], left > 1 ? from[1] : 0, left > 2 ? from[2] : 0, left > 3 ? from[3] : 0};
      }
    }
  }
  /// `apart`: sums of the tile; null where there are none.
  __device__ void store(const FinishMemory<Short>* apart) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (!has(i)) continue;
      const int all[kAtOnce] = {sums_[i].x, sums_[i].y, sums_[i].z, sums_[i].w};
      float values[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        float more = bias_[k];
        if (apart != nullptr) more += apart->sums[first_ + kRowsAtOnce * i][within_ + k];
        values[k] = activated(job_.product, fmaf(static_cast<float>(all[k]), factor_[k] * largest_[i], more));
      }
      store(values, place(i));
    }
  }

 private:
  __device__ bool whole() const {
    return job_.product.weights.out_features % kAtOnce == 0;
  }
  __device__ bool has(int number) const {
    return row_ + kRowsAtOnce * number < job_.product.rows && feature_ < job_.product.weights.out_features;
  }
  __device__ int64_t place(int number) const {
    return int64_t{row_ + kRowsAtOnce * number} * job_.product.weights.out_features + feature_;
  }
  __device__ void store(float (&values)[kAtOnce], int64_t place) const {
    auto* const to = static_cast<Short*>(job_.product.output) + place;
    const auto* const more = static_cast<const Short*>(job_.product.sum) + place;
    if (whole()) {
      if (job_.product.sum != nullptr) {
        const uint2 both = __ldcg(reinterpret_cast<const uint2*>(more));
        const float2 low = unpacked<Short>(both.x), high = unpacked<Short>(both.y);
        values[0] += low.x, values[1] += low.y, values[2] += high.x, values[3] += high.y;
      }
      *reinterpret_cast<uint2*>(to) = {packed<Short>(values[0], values[1]),
                                       packed<Short>(values[2], values[3])};
      return;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (feature_ + i >= job_.product.weights.out_features) break;
      to[i] = rounded_to<Short>(job_.product.sum == nullptr ? values[i] : values[i] + as_float(more[i]));
    }
  }

  const OutlierProduct& job_;
  const int32_t* const from_;
  const int within_, first_, row_, feature_;
  float factor_[kAtOnce], bias_[kAtOnce], largest_[kRows];
  int4 sums_[kRows];
};

template <class Short>
__global__ void __launch_bounds__(kThreads)
    finish_outlier_product_kernel(const __grid_constant__ OutlierProduct job, const int32_t* sums) {
  __shared__ FinishMemory<Short> memory;
  const int first_row = blockIdx.y * kTileRows, first_feature = blockIdx.x * kTileFeatures;
  FinishedSums<Short> finished(job, sums, first_row, first_feature);
  finished.load();
  const int columns = *job.apart.count;
  if (columns > 0) {
    multiply_apart(job, memory, first_row, first_feature, columns);
    __syncthreads();
  }
  finished.store(columns > 0 ? &memory : nullptr);
}

}  // namespace

void finish_outlier_product(const OutlierProduct& job, const int32_t* sums, cudaStream_t stream) {
  const dim3 tiles(static_cast<unsigned>(gpu::divided_up(job.product.weights.out_features, kTileFeatures)),
                   static_cast<unsigned>(gpu::divided_up(job.product.rows, kTileRows)));
  with_type(job.product.type, [&](auto type) {
    gpu::launch("finish_outlier_product_kernel", finish_outlier_product_kernel<decltype(type)>, tiles,
                kThreads, 0, stream, job, sums);
  });
}

}  // namespace adtrain::kernels
