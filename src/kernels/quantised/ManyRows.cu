#include <algorithm>

#include "base/Cuda.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/MatrixRows.h"
#include "kernels/primitives/WarpgroupProducts.cuh"
#include "kernels/primitives/WideProductInstructions.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// The product as its transpose: weights are the left operand of "wgmma", 64 features a warpgroup, and the
/// input's rows are the columns of the right one. Codes and inputs stream through shared memory, 64 columns
/// of the sum for each warpgroup's share in a step, three steps ahead. Codes become left operands in
/// registers, scaled in 16 bit, while the products of the step before are under way. Copies of codes and the
/// table begin before the kernel has ended that writes the input, as weights are constant.
///
/// Shared memory, 105 to 145 KiB:
///
///     stages  (4): inputs (shares, rows, 64), swizzled, and codes (warpgroups, 64 features, 64 columns), of
///             which rows are 16 bytes apart, so that lanes use different banks; at the end the sums of other
///             shares, and the output, to be stored
///     table   of pairs, 32 KiB; not for 8 bits
///     up to 1 KiB before these, so that tiles begin where the swizzle does
namespace adtrain::kernels {
namespace {

constexpr int kStages = 4, kAhead = kStages - 1;  ///< steps whose copies are under way, and one that is read
constexpr int kProducts = kBlockColumns / 16;     ///< of 64 columns
constexpr int kGroupThreads = kWarpsOfGroup * kWarp;
constexpr int kChunk = 16;  ///< bytes that are copied at once

/// What a thread block computes: 64 `Groups` features of `Rows` rows. `Shares` warpgroups share the columns
/// that are summed over.
template <int Groups, int Shares, int Rows>
struct TileShape {
  static constexpr int kGroups = Groups, kShares = Shares, kRows = Rows;
  static constexpr int kFeatures = Groups * kGroupRows, kThreads = Groups * Shares * kGroupThreads;
};

template <class Short>
__device__ uint32_t product_of_pairs(uint32_t left, uint32_t right) {
  if constexpr (std::is_same_v<Short, __half>) {
    const __half2 pair =
        __hmul2(reinterpret_cast<const __half2&>(left), reinterpret_cast<const __half2&>(right));
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    return multiplied(left, right);
  }
}

/// The work of one thread. All of it is inlined by force: where the compiler keeps a function apart, sums lie
/// in memory.
template <class Short, WeightForm kForm, class Shape>
class ManyRows {
  static constexpr bool kTable = kForm != WeightForm::kEightBits;
  static constexpr int kRows = Shape::kRows, kShares = Shape::kShares, kThreads = Shape::kThreads;
  static constexpr int kInputBytes = Tile<kBlockColumns>::bytes(kRows);
  static constexpr int kRowCodes = kBlockColumns / (kTable ? 2 : 1), kCodePitch = kRowCodes + kChunk;
  static constexpr int kCodeBytes = kGroupRows * kCodePitch;  ///< of a warpgroup
  static constexpr int kStageBytes = kShares * (kInputBytes + Shape::kGroups * kCodeBytes);
  static_assert(kStageBytes % kTileAlignment == 0);
  static constexpr int kTablePlace = kStages * kStageBytes;

 public:
  static constexpr int kBytes = kTablePlace + (kTable ? PairTable::kBytes : 0) + kTileAlignment;

  __device__ ManyRows(const QuantisedProduct& job, int feature_tiles, char* shared, const float* nested_map)
      : job_(job),
        shared_(shared),
        nested_map_(nested_map),
        table_(shared + kTablePlace),
        place_(lane_place()),
        first_feature_(int64_t{blockIdx.x} % feature_tiles * Shape::kFeatures),
        first_row_(static_cast<int>(blockIdx.x) / feature_tiles * kRows),
        blocks_(static_cast<int>(job.weights.in_features) / kBlockColumns),
        group_(static_cast<int>(threadIdx.x) / kGroupThreads),
        share_(group_ / Shape::kGroups),
        in_group_(static_cast<int>(threadIdx.x) % kGroupThreads) {}

  template <class Fill>
  __device__ __forceinline__ void run(Fill&& fill) {
    const int steps = (blocks_ + kShares - 1) / kShares;
#pragma unroll
    for (int step = 0; step < kAhead; ++step) {
      if (step < steps) fetch_codes(step);
    }
    load_scales(0);
    fill(table_);
    await_kernels_ahead();
#pragma unroll
    for (int step = 0; step < kAhead; ++step) {
      if (step < steps) fetch_inputs(step);
      close_copies();
    }
#pragma unroll
    for (Sums& sums : sums_) sums = no_sums();
    LeftFragment even[kProducts], odd[kProducts];
    stage_arrives();
    make(even, 0);
#pragma unroll 1
    for (int step = 0; step < steps; step += 2) {
      multiply(even, odd, step, steps);
      if (step + 1 < steps) multiply(odd, even, step + 1, steps);
    }
    copies_arrived();
    __syncthreads();
    meet_shares();
    store();
  }

 private:
  __device__ __forceinline__ char* stage(int step) const {
    return shared_ + step % kStages * kStageBytes;
  }
  __device__ __forceinline__ Tile<kBlockColumns> inputs(int step, int share) const {
    return {reinterpret_cast<Bf16*>(stage(step) + share * kInputBytes)};
  }
  /// The warpgroup's codes.
  __device__ __forceinline__ char* codes(int step) const {
    return stage(step) + kShares * kInputBytes + group_ * kCodeBytes;
  }
  /// Of features that do not exist the last one: nobody stores their sums.
  __device__ __forceinline__ int64_t existing(int64_t feature) const {
    return min(feature, job_.weights.out_features - 1);
  }
  /// The warpgroup's 64 columns of a step; beyond the last ones, where inputs are 0, any.
  __device__ __forceinline__ int block(int step) const {
    return min(step * kShares + share_, blocks_ - 1);
  }
  /// The lane's feature, or with half = 1 that which is 8 further.
  __device__ __forceinline__ int64_t feature(int half) const {
    return first_feature_ + kGroupRows * (group_ % Shape::kGroups) + kWarpTile * (in_group_ / kWarp) +
           place_.row + 8 * half;
  }

  /// Rows and columns that do not exist are cleared.
  __device__ __forceinline__ void fetch_inputs(int step) const {
    constexpr int kChunks = kBlockColumns / kVectorWidth, kAtOnce = kThreads / kChunks;
    static_assert(kRows % kAtOnce == 0);
    const int row = static_cast<int>(threadIdx.x) / kChunks,
              column = kVectorWidth * (static_cast<int>(threadIdx.x) % kChunks);
    const int64_t width = job_.weights.in_features;
    const auto* const from = static_cast<const Bf16*>(job_.input) + (first_row_ + row) * width + column;
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
      const int of_share = step * kShares + share;
#pragma unroll
      for (int i = 0; i < kRows; i += kAtOnce) {
        const bool exists = first_row_ + row + i < job_.rows && of_share < blocks_;
        start_copy_or_clear(from_row(inputs(step, share), i).at(row, column),
                            exists ? from + i * width + kBlockColumns * of_share : from, exists);
      }
    }
  }
  __device__ __forceinline__ void fetch_codes(int step) const {
    constexpr int kChunks = kRowCodes / kChunk, kAtOnce = kGroupThreads / kChunks;
    const int row = in_group_ / kChunks, chunk = in_group_ % kChunks;
    const int64_t of_feature = job_.weights.in_features / kBlockColumns * kRowCodes;
    const auto* const from =
        static_cast<const char*>(job_.weights.codes) + int64_t{block(step)} * kRowCodes + chunk * kChunk;
    const int64_t first = first_feature_ + kGroupRows * (group_ % Shape::kGroups);
#pragma unroll
    for (int i = 0; i < kGroupRows; i += kAtOnce) {
      start_copy(codes(step) + (row + i) * kCodePitch + chunk * kChunk,
                 from + existing(first + row + i) * of_feature);
    }
  }
  __device__ __forceinline__ void load_scales(int step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scales_[half] = StoredScale<kForm>::load(
          job_.weights, block_of(job_.weights, existing(feature(half)), kBlockColumns * block(step)));
    }
  }

  /// Waits for the copies of the next stage, and for the other threads.
  __device__ __forceinline__ void stage_arrives() const {
    copies_arrived_but_last();
    show_to_products();
    __syncthreads();
  }
  /// Adds the products of a step's columns, and makes the next step's left operands meanwhile. After the last
  /// step these are of any codes, and are not used.
  __device__ __forceinline__ void multiply(LeftFragment (&left)[kProducts], LeftFragment (&next)[kProducts],
                                           int step, int steps) {
    const uint64_t right = descriptor_of(inputs(step, share_));
    take_sums(sums_);
    begin_products();
#pragma unroll
    for (int product = 0; product < kProducts; ++product)
      start_wide_product<Short>(sums_, left[product], further(right, 16 * product));
    close_products();
    stage_arrives();  // and all products with the stage before this one have ended: it is free
    if (step + kAhead < steps) {
      fetch_codes(step + kAhead);
      fetch_inputs(step + kAhead);
    }
    close_copies();
    make(next, step + 1);
    products_arrived<0>();
    take_sums(sums_);
    hold(left);
  }
  /// Makes the left operands of a step. Its scales have been loaded, and the next step's are after it.
  __device__ __forceinline__ void make(LeftFragment (&left)[kProducts], int step) {
    uint32_t scale[2] = {};
    if constexpr (kTable) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float value = scales_[half].value(job_.weights, nested_map_);
        scale[half] = packed<Short>(value, value);
      }
      load_scales(step + 1);
    }
    const LaneRows rows(codes(step) + (kWarpTile * (in_group_ / kWarp) + place_.row) * kCodePitch);
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
#pragma unroll
      for (int part = 0; part < 4; ++part)
        left[product].part[part] = pair(rows, part % 2, 2 * product + part / 2, scale[part % 2]);
    }
  }

  /// The lane's two rows of codes in a stage. 4 bits are loaded here, by wide loads.
  struct LaneRows {
    const char* from;
    uint4 words[2][kRowCodes / kChunk];

    __device__ explicit LaneRows(const char* first) : from(first) {
      if constexpr (kTable) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int i = 0; i < kRowCodes / kChunk; ++i)
            words[half][i] = reinterpret_cast<const uint4*>(first + 8 * half * kCodePitch)[i];
        }
      }
    }
    __device__ __forceinline__ uint32_t word(int half, int number) const {
      const uint4& four = words[half][number / 4];
      const uint32_t all[4] = {four.x, four.y, four.z, four.w};
      return all[number % 4];
    }
  };
  /// The lane's two neighbouring weights among columns 8 `eight` … + 7 of one of its rows.
  __device__ __forceinline__ uint32_t pair(const LaneRows& rows, int half, int eight, uint32_t scale) const {
    if constexpr (kTable) {
      return product_of_pairs<Short>(table_.pair_of_quad(rows.word(half, eight), place_.column / 2), scale);
    } else {
      const char* const from = rows.from + 8 * half * kCodePitch + 8 * eight + place_.column;
      return pair_of_codes<Short>(__byte_perm(*reinterpret_cast<const uint16_t*>(from), 0, 0x4140));
    }
  }

  /// Adds the sums of the other shares to those of the first, in their order.
  __device__ __forceinline__ void meet_shares() {
    if constexpr (kShares > 1) {
      static_assert(kShares == 2);
      float* const parts =
          reinterpret_cast<float*>(shared_) + group_ % Shape::kGroups * (kGroupRows * kRows) + in_group_;
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) {
        if (share_ > 0) parts[kGroupThreads * i] = sums_[i / 4].value[i % 4];
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) {
        if (share_ == 0) sums_[i / 4].value[i % 4] += parts[kGroupThreads * i];
      }
      __syncthreads();
    }
  }

  __device__ __forceinline__ void store() {
    const Tile<Shape::kFeatures> tile = {reinterpret_cast<Bf16*>(shared_)};
    if (share_ == 0) set_output(tile);
    __syncthreads();
    constexpr int kChunks = Shape::kFeatures / kVectorWidth;
    const int64_t features = job_.weights.out_features;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
      const int row = i / kChunks, column = kVectorWidth * (i % kChunks);
      if (first_row_ + row >= job_.rows) break;
      const int64_t first = first_feature_ + column;
      auto* const to = static_cast<Bf16*>(job_.output) + (first_row_ + row) * features + first;
      if (features % kVectorWidth == 0) {
        if (first < features)
          *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(tile.at(row, column));
      } else {
        for (int k = 0; k < kVectorWidth && first + k < features; ++k) to[k] = *tile.at(row, column + k);
      }
    }
  }
  /// The rounded sums as a tile (rows, features).
  __device__ __forceinline__ void set_output(Tile<Shape::kFeatures> tile) const {
    float factor[2], bias[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t own = existing(feature(half));
      factor[half] = kTable ? 1.0f : row_scale(job_.weights, own);
      bias[half] = job_.bias == nullptr ? 0.0f : as_float(static_cast<const Short*>(job_.bias)[own]);
    }
    const int lane = in_group_ % kWarp;
    const int column = kGroupRows * (group_ % Shape::kGroups) + kWarpTile * (in_group_ / kWarp);
#pragma unroll
    for (int row = 0; row < kRows; row += 16) {
      uint32_t rounded[4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const float* const value = sums_[row / 8 + part / 2].value + 2 * (part % 2);
        rounded[part] = packed<Short>(fmaf(value[0], factor[part % 2], bias[part % 2]),
                                      fmaf(value[1], factor[part % 2], bias[part % 2]));
      }
      store_matrices_transposed(
          shared_address(tile.at(row + lane % 8 + 8 * (lane / 16), column + 8 * (lane / 8 % 2))), rounded);
    }
  }

  const QuantisedProduct& job_;
  char* const shared_;
  const float* const nested_map_;
  const PairTable table_;
  const LanePlace place_;
  const int64_t first_feature_;
  const int first_row_, blocks_;
  const int group_, share_, in_group_;  ///< the warpgroup, what it sums over, the thread in it
  StoredScale<kForm> scales_[2];        ///< of the next step
  Sums sums_[kRows / 8];
};

template <class Short, WeightForm kForm, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    many_rows_kernel(const __grid_constant__ QuantisedProduct job, int feature_tiles) {
  __shared__ float nested_map[256];
  let_next_kernel_start();
  ManyRows<Short, kForm, Shape>(job, feature_tiles, shared_memory_for_tiles(), nested_map)
      .run([&](const PairTable& table) {
        if constexpr (kForm != WeightForm::kEightBits)
          table.template fill<Short>(job.weights.code_map, Shape::kThreads);
        if constexpr (kForm == WeightForm::kNestedFourBits) {
          if (threadIdx.x < 256) nested_map[threadIdx.x] = __ldg(job.weights.nested_map + threadIdx.x);
        }
      });
}

template <class Short, WeightForm kForm, class Shape>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  const int64_t feature_tiles = gpu::divided_up(product.weights.out_features, Shape::kFeatures),
                row_tiles = gpu::divided_up(product.rows, Shape::kRows);
  launch_early("many_rows_kernel", many_rows_kernel<Short, kForm, Shape>,
               static_cast<unsigned>(feature_tiles * row_tiles), Shape::kThreads,
               ManyRows<Short, kForm, Shape>::kBytes, stream, product, static_cast<int>(feature_tiles));
}

template <class Short, WeightForm kForm>
void launch(const QuantisedProduct& product, ProductWay tile, cudaStream_t stream) {
  switch (tile) {
    case ProductWay::kTile64x64:
      return launch<Short, kForm, TileShape<1, 2, 64>>(product, stream);
    case ProductWay::kTile128x64:
      return launch<Short, kForm, TileShape<2, 2, 64>>(product, stream);
    default:
      return launch<Short, kForm, TileShape<2, 1, 128>>(product, stream);
  }
}

}  // namespace

void many_rows_product(const QuantisedProduct& product, ProductWay tile, cudaStream_t stream) {
  with_type(product.type, [&](auto type) {
    using Short = decltype(type);
    switch (product.weights.form) {
      case WeightForm::kFourBits:
        return launch<Short, WeightForm::kFourBits>(product, tile, stream);
      case WeightForm::kNestedFourBits:
        return launch<Short, WeightForm::kNestedFourBits>(product, tile, stream);
      case WeightForm::kEightBits:
        return launch<Short, WeightForm::kEightBits>(product, tile, stream);
    }
  });
}

}  // namespace adtrain::kernels
