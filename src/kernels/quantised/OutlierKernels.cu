#include "base/Launch.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/RowVectors.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/quantised/ApartColumns.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/OutlierKernels.h"

namespace adtrain::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

/// The sign's bit left off, fp16's numbers are in the order of their bits, NaNs behind infinity.
constexpr unsigned kMagnitudeBits = 0x7fff, kInfinityBits = 0x7c00;

__device__ inline unsigned half_magnitude(float value) {
  return __half_as_ushort(__float2half_rn(value)) & kMagnitudeBits;
}

/// Eight neighbouring elements of a row, 0 behind its end.
template <class Short>
__device__ Floats elements_of(const Short* row, int first, int columns) {
  if (columns % kVectorWidth == 0) return unpacked<Short>(*reinterpret_cast<const Vector*>(row + first));
  Floats elements;
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i)
    elements.at[i] = first + i < columns ? as_float(row[first + i]) : 0.0f;
  return elements;
}

__device__ inline unsigned warp_max_of(unsigned value) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2)
    value = max(value, __shfl_xor_sync(kAllLanes, value, apart));
  return value;
}

/// The greatest magnitude, as fp16's bits, of eight neighbouring elements that are no outliers. Marks the
/// columns of those that are.
__device__ inline unsigned marked(const OutlierRows& job, const Floats& elements, int first,
                                  uint8_t* outlier_columns) {
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i) {
    const unsigned magnitude = half_magnitude(elements.at[i]);
    if (magnitude >= job.threshold_bits && magnitude <= kInfinityBits) {
      if (first + i < job.columns) outlier_columns[first + i] = 1;
    } else {
      most = max(most, magnitude);
    }
  }
  return most;
}

__device__ inline float magnitude_of(unsigned bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/// Stores the codes of eight neighbouring elements of a row, whose greatest magnitude is `most`.
__device__ inline void store_codes(const OutlierRows& job, const Floats& elements, int first, float most,
                                   const uint8_t* outlier_columns, int8_t* to) {
  const float factor = most == 0.0f ? 0.0f : __fmul_rn(1.0f / most, 127.0f);
  const uint2 both = *reinterpret_cast<const uint2*>(outlier_columns + first);
  const uint32_t apart[2] = {both.x, both.y};
  uint32_t words[2] = {};  // of codes
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i) {
    const int place = 8 * (i % 4);
    const float half = __half2float(__float2half_rn(elements.at[i]));
    const int code = static_cast<int>(rintf(__fmul_rn(half, factor)));
    if ((apart[i / 4] >> place & 1) == 0) words[i / 4] |= (static_cast<uint32_t>(code) & 0xff) << place;
  }
  if (job.columns % kVectorWidth == 0) {
    *reinterpret_cast<uint2*>(to + first) = {words[0], words[1]};
  } else {
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      const auto code = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
      if (first + i < job.columns) to[first + i] = static_cast<int8_t>(code);
    }
  }
}

/// Which row a thread has, and which of its elements: a thread block has a row where rows are few, and else a
/// warp.
template <bool kFewRows>
struct ShareOfRow {
  static constexpr int kThreadsOfRow = kFewRows ? kThreads : kWarp, kRowsOfBlock = kThreads / kThreadsOfRow,
                       kStep = kVectorWidth * kThreadsOfRow;
  int row, first;

  __device__ static ShareOfRow own() {
    const int thread = static_cast<int>(threadIdx.x);
    return {static_cast<int>(blockIdx.x) * kRowsOfBlock + thread / kThreadsOfRow,
            kVectorWidth * (thread % kThreadsOfRow)};
  }
  static unsigned blocks(int rows) { return static_cast<unsigned>(gpu::divided_up(rows, kRowsOfBlock)); }
};

template <class Short, bool kFewRows>
__global__ void __launch_bounds__(kThreads)
    find_outliers_kernel(const __grid_constant__ OutlierRows job, uint8_t* outlier_columns, float* largest) {
  using Share = ShareOfRow<kFewRows>;
  __shared__ unsigned of_warps[kWarps];
  const Share share = Share::own();
  if (share.row >= job.rows) return;
  const Short* const from = static_cast<const Short*>(job.input) + int64_t{share.row} * job.columns;
  unsigned most = 0;
#pragma unroll 2
  for (int first = share.first; first < job.columns; first += Share::kStep)
    most = max(most, marked(job, elements_of(from, first, job.columns), first, outlier_columns));
  most = warp_max_of(most);
  if constexpr (kFewRows) {
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = most;
    __syncthreads();
    most = warp_max_of(of_warps[threadIdx.x % kWarps]);
  }
  if (share.first == 0) largest[share.row] = magnitude_of(most);
}

/// By one thread block of so many threads, of which each has 16 neighbouring columns at once.
template <int Threads>
__device__ void list_columns(const uint8_t* outlier_columns, int columns, const OutlierColumns& list) {
  constexpr int kAtOnce = sizeof(uint4);
  __shared__ int of_warps[Threads / kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int before = 0;
#pragma unroll 1
  for (int begin = 0; begin < columns; begin += kAtOnce * Threads) {
    const int first = begin + kAtOnce * static_cast<int>(threadIdx.x);
    uint4 found = {0, 0, 0, 0};
    if (first < columns) found = *reinterpret_cast<const uint4*>(outlier_columns + first);
    const int own = __popc(found.x) + __popc(found.y) + __popc(found.z) + __popc(found.w);
    if (__syncthreads_or(own) == 0) continue;  // as a rule
    int place = own;                           // the sum up to this lane
#pragma unroll
    for (int apart = 1; apart < kWarp; apart *= 2) {
      const int of_others = __shfl_sync(kAllLanes, place, max(lane - apart, 0));
      if (lane >= apart) place += of_others;
    }
    if (lane == kWarp - 1) of_warps[warp] = place;
    place += before - own;
    __syncthreads();
#pragma unroll
    for (int other = 0; other < Threads / kWarp; ++other) {
      if (other < warp) place += of_warps[other];
      before += of_warps[other];
    }
    if (own > 0) {
      const uint32_t words[4] = {found.x, found.y, found.z, found.w};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if ((words[i / 4] >> 8 * (i % 4) & 1) != 0) list.columns[place++] = first + i;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *list.count = before;
}

/// The last thread block lists columns.
template <class Short, bool kFewRows>
__global__ void __launch_bounds__(kThreads)
    round_rows_kernel(const __grid_constant__ OutlierRows job, const uint8_t* outlier_columns,
                      const float* largest, int8_t* codes, const __grid_constant__ OutlierColumns list) {
  using Share = ShareOfRow<kFewRows>;
  let_next_kernel_start();
  if (blockIdx.x == gridDim.x - 1) {
    list_columns<kThreads>(outlier_columns, job.columns, list);
    return;
  }
  const Share share = Share::own();
  if (share.row >= job.rows) return;
  const Short* const from = static_cast<const Short*>(job.input) + int64_t{share.row} * job.columns;
  int8_t* const to = codes + int64_t{share.row} * job.columns;
  const float most = largest[share.row];
#pragma unroll 2
  for (int first = share.first; first < job.columns; first += Share::kStep)
    store_codes(job, elements_of(from, first, job.columns), first, most, outlier_columns, to);
}

/// By one thread block, whose warps share the rows: each has a row, or several have one.
constexpr int kThreadsAtOnce = 1024;
static_assert(kThreadsAtOnce / kWarp == kMostRowsAtOnce);

template <class Short>
__global__ void __launch_bounds__(kThreadsAtOnce, 1)
    find_and_round_kernel(const __grid_constant__ OutlierRows job, float* largest, int8_t* codes,
                          const __grid_constant__ OutlierColumns list) {
  __shared__ unsigned of_rows[kMostRowsAtOnce];
  auto* const outlier_columns = reinterpret_cast<uint8_t*>(dynamic_shared_memory());
  let_next_kernel_start();
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int kAtOnce = sizeof(uint4);
  for (int first = kAtOnce * thread; first < job.columns; first += kAtOnce * kThreadsAtOnce)
    *reinterpret_cast<uint4*>(outlier_columns + first) = {0, 0, 0, 0};
  if (thread < kMostRowsAtOnce) of_rows[thread] = 0;
  __syncthreads();
  const int threads_of_row = kThreadsAtOnce / kWarp / job.rows * kWarp, row = thread / threads_of_row,
            begin = kVectorWidth * (thread % threads_of_row), step = kVectorWidth * threads_of_row;
  const bool exists = row < job.rows;
  const Short* const from = static_cast<const Short*>(job.input) + int64_t{exists ? row : 0} * job.columns;
  if (exists) {
    unsigned most = 0;
#pragma unroll 2
    for (int first = begin; first < job.columns; first += step)
      most = max(most, marked(job, elements_of(from, first, job.columns), first, outlier_columns));
    most = warp_max_of(most);
    if (thread % kWarp == 0) atomicMax(&of_rows[row], most);
  }
  __syncthreads();
  if (exists) {
    const float most = magnitude_of(of_rows[row]);
    if (begin == 0) largest[row] = most;
#pragma unroll 2
    for (int first = begin; first < job.columns; first += step) {
      store_codes(job, elements_of(from, first, job.columns), first, most, outlier_columns,
                  codes + int64_t{row} * job.columns);
    }
  }
  list_columns<kThreadsAtOnce>(outlier_columns, job.columns, list);
}

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

/// Calls launch(the rows' type, the ShareOfRow that suits them).
template <class Launch>
void for_rows(const OutlierRows& rows, Launch&& launch) {
  constexpr int kFewRows = 1024;  // so many thread blocks run at once
  with_type(rows.type, [&](auto type) {
    if (rows.rows <= kFewRows) {
      launch(type, std::true_type());
    } else {
      launch(type, std::false_type());
    }
  });
}

}  // namespace

void find_outliers(const OutlierRows& rows, uint8_t* outlier_columns, float* largest, cudaStream_t stream) {
  for_rows(rows, [&](auto type, auto few) {
    constexpr bool kFew = decltype(few)::value;
    gpu::launch("find_outliers_kernel", find_outliers_kernel<decltype(type), kFew>,
                ShareOfRow<kFew>::blocks(rows.rows), kThreads, 0, stream, rows, outlier_columns, largest);
  });
}

void round_rows(const OutlierRows& rows, const uint8_t* outlier_columns, const float* largest, int8_t* codes,
                const OutlierColumns& list, cudaStream_t stream) {
  for_rows(rows, [&](auto type, auto few) {
    constexpr bool kFew = decltype(few)::value;
    gpu::launch("round_rows_kernel", round_rows_kernel<decltype(type), kFew>,
                ShareOfRow<kFew>::blocks(rows.rows) + 1, kThreads, 0, stream, rows, outlier_columns, largest,
                codes, list);
  });
}

void find_and_round(const OutlierRows& rows, float* largest, int8_t* codes, const OutlierColumns& list,
                    cudaStream_t stream) {
  constexpr int kAtOnce = sizeof(uint4);
  const int bytes = (rows.columns + kAtOnce - 1) / kAtOnce * kAtOnce;
  with_type(rows.type, [&](auto type) {
    gpu::launch("find_and_round_kernel", find_and_round_kernel<decltype(type)>, 1, kThreadsAtOnce, bytes,
                stream, rows, largest, codes, list);
  });
}

void finish_outlier_product(const OutlierProduct& job, const int32_t* sums, cudaStream_t stream) {
  const dim3 tiles(static_cast<unsigned>(gpu::divided_up(job.product.weights.out_features, kTileFeatures)),
                   static_cast<unsigned>(gpu::divided_up(job.product.rows, kTileRows)));
  with_type(job.product.type, [&](auto type) {
    gpu::launch("finish_outlier_product_kernel", finish_outlier_product_kernel<decltype(type)>, tiles,
                kThreads, 0, stream, job, sums);
  });
}

}  // namespace adtrain::kernels
