#include <algorithm>

#include "base/Cuda.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/HalfInstructions.cuh"
#include "kernels/primitives/WideProductInstructions.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/ManyRowsSlots.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// The product as its transpose: weights are the left operand of "wgmma", 64 features a warpgroup, and the
/// input's rows are the columns of the right one. Codes and inputs stream through slots of shared memory, 64
/// columns of the sum in a step. Codes become left operands in registers, scaled in 16 bit, while the
/// products of the step before are under way. Where there are few tiles, thread blocks share the columns that
/// are summed over, and a second kernel adds up what they found.
///
/// Copies of codes and the table begin before the kernel has ended that writes the input, as weights are
/// constant.
namespace adtrain::kernels {
namespace {

constexpr int kProducts = kBlockColumns / 16;  ///< of 64 columns

template <class Short>
__device__ uint32_t product_of_pairs(uint32_t left, uint32_t right) {
  if constexpr (std::is_same_v<Short, __half>) {
    return multiplied_half(left, right);
  } else {
    return multiplied(left, right);
  }
}

/// A thread of a warpgroup that multiplies. All of it is inlined by force: where the compiler keeps a
/// function apart, sums lie in memory.
template <class Short, WeightForm kForm, class Shape>
class TileProduct {
  using Memory = ManyRowsMemory<kForm, Shape>;
  static constexpr bool kTable = Memory::kTable;
  static constexpr int kRows = Shape::kRows;

 public:
  __device__ TileProduct(const QuantisedProduct& job, const TilePlace& place, Memory memory)
      : job_(job),
        place_(place),
        memory_(memory),
        table_(memory.from + Memory::kTablePlace),
        lane_place_(lane_place()),
        first_(kGroupRows * (static_cast<int>(threadIdx.x) / kGroupThreads) +
               kWarpTile * (static_cast<int>(threadIdx.x) % kGroupThreads / kWarp)) {}

  template <class Barrier>
  __device__ __forceinline__ void run(Barrier&& barrier) {
#pragma unroll
    for (Sums& sums : sums_) sums = no_sums();
    LeftFragment even[kProducts], odd[kProducts];
    barrier();
    make(even, 0);
#pragma unroll 1
    for (int step = 0; step < place_.steps; step += 2) {
      multiply(even, odd, step, barrier);
      if (step + 1 < place_.steps) multiply(odd, even, step + 1, barrier);
    }
  }

  /// The sums (rows, features) in fp32, of those that exist.
  __device__ __forceinline__ void store_part(float* to) const {
    const int64_t features = job_.weights.out_features;
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const int row = place_.first_row + 8 * (i / 4) + lane_place_.column + i % 2;
      const int64_t own = feature(i / 2 % 2);
      if (row < job_.rows && own < features) to[row * features + own] = sums_[i / 4].value[i % 4];
    }
  }
  /// The result without the sum as a tile (rows, features).
  __device__ __forceinline__ void set_output(Tile<Shape::kFeatures> tile) const {
    float factor[2], bias[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t own = min(feature(half), job_.weights.out_features - 1);
      factor[half] = kTable ? 1.0f : row_scale(job_.weights, own);
      bias[half] = job_.bias == nullptr ? 0.0f : as_float(static_cast<const Short*>(job_.bias)[own]);
    }
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int row = 0; row < kRows; row += 16) {
      uint32_t rounded[4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const float* const value = sums_[row / 8 + part / 2].value + 2 * (part % 2);
        rounded[part] = packed<Short>(before_sum(fmaf(value[0], factor[part % 2], bias[part % 2])),
                                      before_sum(fmaf(value[1], factor[part % 2], bias[part % 2])));
      }
      store_matrices_transposed(
          shared_address(tile.at(row + lane % 8 + 8 * (lane / 16), first_ + 8 * (lane / 8 % 2))), rounded);
    }
  }

 private:
  __device__ __forceinline__ float before_sum(float value) const {
    constexpr float kRootHalf = 0.70710678f;
    return job_.gelu ? 0.5f * value * (1.0f + erff(kRootHalf * value)) : value;
  }
  /// The lane's feature, or with half = 1 that which is 8 further.
  __device__ __forceinline__ int64_t feature(int half) const {
    return place_.first_feature + first_ + lane_place_.row + 8 * half;
  }
  /// Adds the products of a step's columns, and makes the next step's left operands meanwhile. After the last
  /// step these are of any codes, and are not used.
  template <class Barrier>
  __device__ __forceinline__ void multiply(LeftFragment (&left)[kProducts], LeftFragment (&next)[kProducts],
                                           int step, Barrier&& barrier) {
    const uint64_t right = descriptor_of(memory_.inputs(step));
    take_sums(sums_);
    begin_products();
#pragma unroll
    for (int product = 0; product < kProducts; ++product)
      start_wide_product<Short>(sums_, left[product], further(right, 16 * product));
    close_products();
    barrier();  // the next slot is full
    make(next, step + 1);
    products_arrived<0>();
    take_sums(sums_);
    hold(left);
  }
  __device__ __forceinline__ void make(LeftFragment (&left)[kProducts], int step) {
    const int row = first_ + lane_place_.row;
    uint32_t scale[2] = {};
    if constexpr (kTable) {
#pragma unroll
      for (int half = 0; half < 2; ++half) scale[half] = memory_.scales(step)[row + 8 * half];
    }
    const LaneRows rows(memory_.codes(step) + row * Memory::kCodePitch);
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
#pragma unroll
      for (int part = 0; part < 4; ++part)
        left[product].part[part] = pair(rows, part % 2, 2 * product + part / 2, scale[part % 2]);
    }
  }

  /// The lane's two rows of codes in a slot. 4 bits are loaded here, by wide loads.
  struct LaneRows {
    const char* from;
    uint4 words[2][Memory::kRowCodes / kChunk];

    __device__ explicit LaneRows(const char* first) : from(first) {
      if constexpr (kTable) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int i = 0; i < Memory::kRowCodes / kChunk; ++i)
            words[half][i] = reinterpret_cast<const uint4*>(first + 8 * half * Memory::kCodePitch)[i];
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
      return product_of_pairs<Short>(table_.pair_of_quad(rows.word(half, eight), lane_place_.column / 2),
                                     scale);
    } else {
      const char* const from = rows.from + 8 * half * Memory::kCodePitch + 8 * eight + lane_place_.column;
      return pair_of_codes<Short>(__byte_perm(*reinterpret_cast<const uint16_t*>(from), 0, 0x4140));
    }
  }

  const QuantisedProduct& job_;
  const TilePlace& place_;
  const Memory memory_;
  const PairTable table_;
  const LanePlace lane_place_;
  const int first_;  ///< of the warp's features in the tile
  Sums sums_[kRows / 8];
};

template <class Short>
__device__ uint32_t sum_of_pairs(uint32_t left, uint32_t right) {
  const float2 first = unpacked<Short>(left), second = unpacked<Short>(right);
  return packed<Short>(first.x + second.x, first.y + second.y);
}

/// Eight neighbours of a row, with those of the sum added.
template <class Short>
__device__ uint4 added(const uint4& values, const void* sum, int64_t place) {
  const uint4 more = __ldg(reinterpret_cast<const uint4*>(static_cast<const Short*>(sum) + place));
  return {sum_of_pairs<Short>(values.x, more.x), sum_of_pairs<Short>(values.y, more.y),
          sum_of_pairs<Short>(values.z, more.z), sum_of_pairs<Short>(values.w, more.w)};
}

/// Stores the tile that was set, and adds the sum.
template <class Short, class Shape>
__device__ void store_output(const QuantisedProduct& job, const TilePlace& place,
                             Tile<Shape::kFeatures> tile) {
  constexpr int kChunks = Shape::kFeatures / kVectorWidth;
  const int64_t features = job.weights.out_features;
  for (int i = static_cast<int>(threadIdx.x); i < Shape::kRows * kChunks; i += Shape::kThreads) {
    const int row = i / kChunks, column = kVectorWidth * (i % kChunks);
    if (place.first_row + row >= job.rows) break;
    const int64_t first = place.first_feature + column;
    const int64_t own = (place.first_row + row) * features + first;
    auto* const to = static_cast<Short*>(job.output) + own;
    if (features % kVectorWidth == 0) {
      if (first >= features) continue;
      const uint4 values = *reinterpret_cast<const uint4*>(tile.at(row, column));
      *reinterpret_cast<uint4*>(to) = job.sum == nullptr ? values : added<Short>(values, job.sum, own);
    } else {
      for (int k = 0; k < kVectorWidth && first + k < features; ++k) {
        const float value = as_float(reinterpret_cast<const Short&>(*tile.at(row, column + k)));
        to[k] = rounded_to<Short>(
            job.sum == nullptr ? value : value + as_float(static_cast<const Short*>(job.sum)[own + k]));
      }
    }
  }
}

/// `parts`: (splits, rows, features), where there is more than one split.
template <class Short, WeightForm kForm, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    many_rows_kernel(const __grid_constant__ QuantisedProduct job, int splits, int feature_tiles,
                     float* parts) {
  __shared__ float nested_map[256];
  using Memory = ManyRowsMemory<kForm, Shape>;
  let_next_kernel_start();
  const TilePlace place = TilePlace::of<Shape>(job, splits, feature_tiles);
  const Memory memory = {shared_memory_for_tiles()};
  const Tile<Shape::kFeatures> output = {reinterpret_cast<Bf16*>(memory.from)};
  const auto barrier = [] { meeting_barrier(1, Shape::kThreads); };
  const auto fill = [&] {
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (Memory::kTable)
      PairTable(memory.from + Memory::kTablePlace)
          .template fill<Short>(job.weights.code_map, Shape::kThreads);
    if constexpr (kForm == WeightForm::kNestedFourBits) {
      for (int i = thread; i < 256; i += Shape::kThreads) nested_map[i] = __ldg(job.weights.nested_map + i);
    }
    barrier();
  };
  if (static_cast<int>(threadIdx.x) >= Shape::kConsumers) {
    SlotFiller<Short, kForm, Shape> filler(job, place, memory, nested_map);
    filler.begin();
    fill();
    await_kernels_ahead();
    filler.run(barrier);
    barrier();
  } else {
    TileProduct<Short, kForm, Shape> product(job, place, memory);
    fill();
    await_kernels_ahead();
    product.run(barrier);
    barrier();
    if (splits > 1) {
      product.store_part(parts + place.split * job.rows * job.weights.out_features);
    } else {
      product.set_output(output);
    }
  }
  if (splits > 1) return;
  barrier();
  store_output<Short, Shape>(job, place, output);
}

constexpr int kSumThreads = 256;

/// Adds up the parts of the splits, in their order.
template <class Short, WeightForm kForm>
__global__ void __launch_bounds__(kSumThreads)
    split_sums_kernel(const __grid_constant__ QuantisedProduct job, int splits, const float* parts) {
  let_next_kernel_start();
  await_kernels_ahead();
  const int64_t features = job.weights.out_features, all = job.rows * features,
                place = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  if (place >= all) return;
  float sum = 0.0f;
  for (int split = 0; split < splits; ++split) sum += __ldcg(parts + split * all + place);
  const int64_t feature = static_cast<uint32_t>(place) % static_cast<uint32_t>(features);
  if constexpr (kForm == WeightForm::kEightBits) sum *= row_scale(job.weights, feature);
  static_cast<Short*>(job.output)[place] = rounded_to<Short>(result_of<Short>(job, sum, feature, place));
}

template <class Short, WeightForm kForm, class Shape>
void launch(const QuantisedProduct& product, int splits, float* parts, cudaStream_t stream) {
  const int64_t feature_tiles = gpu::divided_up(product.weights.out_features, Shape::kFeatures),
                row_tiles = gpu::divided_up(product.rows, Shape::kRows);
  launch_early("many_rows_kernel", many_rows_kernel<Short, kForm, Shape>,
               static_cast<unsigned>(feature_tiles * row_tiles * splits), Shape::kThreads,
               ManyRowsMemory<kForm, Shape>::kBytes, stream, product, splits, static_cast<int>(feature_tiles),
               parts);
  if (splits == 1) return;
  launch_early(
      "split_sums_kernel", split_sums_kernel<Short, kForm>,
      static_cast<unsigned>(gpu::divided_up(product.rows * product.weights.out_features, kSumThreads)),
      kSumThreads, 0, stream, product, splits, static_cast<const float*>(parts));
}

template <class Short, WeightForm kForm>
void launch(const QuantisedProduct& product, const ProductPlan& plan, float* parts, cudaStream_t stream) {
  const int splits = plan.splits;
  switch (plan.way) {
    case ProductWay::kTile128x32:
      return launch<Short, kForm, TileShape<2, 32, 8>>(product, splits, parts, stream);
    case ProductWay::kTile128x64:
      return launch<Short, kForm, TileShape<2, 64, 8>>(product, splits, parts, stream);
    default:
      return launch<Short, kForm, TileShape<2, 128, 6>>(product, splits, parts, stream);
  }
}

}  // namespace

void many_rows_product(const QuantisedProduct& product, const ProductPlan& plan, float* parts,
                       cudaStream_t stream) {
  with_type(product.type, [&](auto type) {
    using Short = decltype(type);
    switch (product.weights.form) {
      case WeightForm::kFourBits:
        return launch<Short, WeightForm::kFourBits>(product, plan, parts, stream);
      case WeightForm::kNestedFourBits:
        return launch<Short, WeightForm::kNestedFourBits>(product, plan, parts, stream);
      case WeightForm::kEightBits:
        return launch<Short, WeightForm::kEightBits>(product, plan, parts, stream);
    }
  });
}

}  // namespace adtrain::kernels
