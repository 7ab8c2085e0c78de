#include <type_traits>

#include "base/Launch.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/RowVectors.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/OutlierKernels.h"

/// What comes before LLM.int8's product of whole numbers: the columns of outliers, and rows of 8 bits.
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
  const int bytes = static_cast<int>(gpu::divided_up(rows.columns, kAtOnce)) * kAtOnce;
  with_type(rows.type, [&](auto type) {
    gpu::launch("find_and_round_kernel", find_and_round_kernel<decltype(type)>, 1, kThreadsAtOnce, bytes,
                stream, rows, largest, codes, list);
  });
}

}  // namespace adtrain::kernels
