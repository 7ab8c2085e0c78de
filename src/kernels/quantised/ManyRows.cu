#include <algorithm>

#include "base/Cuda.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/primitives/WideProductInstructions.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/ManyRowsOutput.cuh"
#include "kernels/quantised/ManyRowsSlots.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// The product as its transpose: weights are the left operand of "wgmma", 64 features a warpgroup, and the
/// input's rows are the columns of the right one. Codes and inputs stream through slots of shared memory, 64
/// columns of the sum in a step. Codes become left operands in registers, scaled in 16 bit, while the
/// products of the step before are under way. Where there are few tiles, the thread blocks of a cluster share
/// the columns that are summed over. Then each adds up some rows of what they found, in the blocks' order.
///
/// Copies of codes and the table begin before the kernel has ended that writes the input, as weights are
/// constant.
namespace adtrain::kernels {
namespace {

constexpr int kProducts = kBlockColumns / 16;  ///< of 64 columns
constexpr int kConsumersBarrier = 1, kFillersBarrier = 2;

/// Exchanges bytes between the four lanes of a quad: byte i of a lane's words was byte `lane` of lane i's.
class QuadTranspose {
 public:
  __device__ explicit QuadTranspose(unsigned lane) {
    const bool upper = lane & 2, odd = lane & 1;
    halves_[0] = upper ? 0x5410 : 0x7632;
    halves_[1] = upper ? 0x3254 : 0x5410;
    halves_[2] = upper ? 0x3276 : 0x7610;
    bytes_[0] = odd ? 0x6420 : 0x7531;
    bytes_[1] = odd ? 0x3514 : 0x5240;
    bytes_[2] = odd ? 0x3716 : 0x7260;
  }
  __device__ __forceinline__ void apply(uint32_t& first, uint32_t& second) const {
    exchange(first, second, halves_, 2);
    exchange(first, second, bytes_, 1);
  }

 private:
  __device__ __forceinline__ static void exchange(uint32_t& first, uint32_t& second,
                                                  const uint32_t (&chosen)[3], int apart) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, __byte_perm(first, second, chosen[0]), apart);
    first = __byte_perm(first, other, chosen[1]);
    second = __byte_perm(second, other, chosen[2]);
  }

  uint32_t halves_[3], bytes_[3];  ///< what is given, and the two results
};

/// A thread of a warpgroup that multiplies. All of it is inlined by force: where the compiler keeps a
/// function apart, sums lie in memory.
template <class Short, WeightForm kForm, class Shape>
class TileProduct {
  using Memory = ManyRowsMemory<kForm, Shape>;
  static constexpr bool kTable = Memory::kTable;
  static constexpr int kRows = Shape::kRows, kRowsAtOnce = kRows < 128 ? kRows : 128;  ///< of an instruction

 public:
  __device__ TileProduct(const TilePlace& place, Memory memory)
      : place_(place),
        memory_(memory),
        lane_(static_cast<int>(lane_anew())),
        table_(memory.from + Memory::kTablePlace, lane_),
        lane_place_(lane_place(lane_)),
        transpose_(lane_),
        first_(kGroupRows * (static_cast<int>(threadIdx.x) / kGroupThreads) +
               kWarpTile * (static_cast<int>(threadIdx.x) % kGroupThreads / kWarp)) {}

  __device__ __forceinline__ void run() {
#pragma unroll
    for (auto& part : sums_) {
#pragma unroll
      for (Sums& sums : part) sums = no_sums();
    }
    LeftFragment even[kProducts], odd[kProducts];
    await(0);
    const StepCodes codes(*this, 0);
#pragma unroll
    for (int product = 0; product < kProducts; ++product) even[product] = codes.left(product);
#pragma unroll 1
    for (int step = 0; step < place_.steps; step += 2) {
      multiply(even, odd, step);
      if (step + 1 < place_.steps) multiply(odd, even, step + 1);
    }
  }
  /// Sends the sums of rows that other blocks of the cluster store to these, and adds theirs to the own ones.
  /// All of the cluster must have read their slots.
  __device__ __forceinline__ void exchange(const RowShare16& share) {
    constexpr int kOfSums = Shape::kConsumers;
    auto* const received = reinterpret_cast<float4*>(memory_.from) + threadIdx.x;
    const int most = 2 * share.most();  // Sums of each block
    int owner = 0, within = 0;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      const int next = share.owner(i / 2);
      within = next == owner ? within : 0;
      owner = next;
      if (owner != share.block)
        start_store(received + (share.block * most + within) * kOfSums, sums(i), memory_.received(), owner);
      ++within;
    }
    memory_.received().await(0);
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      if (share.owner(i / 2) != share.block) continue;
      const float4* const from = received + (i - 2 * share.first()) * kOfSums;
      float4 total = {};
#pragma unroll 1
      for (int block = 0; block < share.blocks; ++block) {
        const float(&own)[4] = sums(i).value;
        const float4 more =
            block == share.block ? float4{own[0], own[1], own[2], own[3]} : from[block * most * kOfSums];
        total = {total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w};
      }
      sums(i) = {{total.x, total.y, total.z, total.w}};
    }
  }
  /// Of the rows that this block stores, to the slots' memory, which nobody reads any more.
  __device__ __forceinline__ void store_sums(const RowShare16& share) {
    float* const to = memory_.sums(lane_place_.column) + first_ + lane_place_.row;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      if (share.owner(i / 2) != share.block) continue;
#pragma unroll
      for (int k = 0; k < 4; ++k) to[(8 * i + k % 2) * Memory::kSumPitch + 8 * (k / 2)] = sums(i).value[k];
    }
  }

 private:
  /// Those of eight rows.
  __device__ __forceinline__ Sums& sums(int number) {
    return sums_[8 * number / kRowsAtOnce][number % (kRowsAtOnce / 8)];
  }

  /// Adds the products of a step's columns, and makes the next step's left operands meanwhile; after the last
  /// step these are of any codes, and are not used. A warp waits at each product until the one before it has
  /// read its left operand, so that there must be something to do between them.
  __device__ __forceinline__ void multiply(LeftFragment (&left)[kProducts], LeftFragment (&next)[kProducts],
                                           int step) {
    const uint64_t right = descriptor_of(memory_.inputs(step));
    const auto start = [&](int product) {
#pragma unroll
      for (int part = 0; part < kRows / kRowsAtOnce; ++part)
        start_wide_product<Short>(sums_[part], left[product],
                                  further(right, 16 * product + part * kRowsAtOnce * kBlockColumns));
      close_products();
    };
#pragma unroll
    for (auto& part : sums_) take_sums(part);
    begin_products();
    start(0);
    if (step + 1 < place_.steps) await(step + 1);
    const StepCodes codes(*this, step + 1);
#pragma unroll
    for (int product = 1; product < kProducts; ++product) {
      next[product - 1] = codes.left(product - 1);
      keep(next[product - 1]);
      start(product);
    }
    next[kProducts - 1] = codes.left(kProducts - 1);
    products_arrived<0>();
#pragma unroll
    for (auto& part : sums_) take_sums(part);
    hold(left);
    __syncwarp();
    if (lane_ == 0) {
      memory_.read(step).arrive();
      if ((step + 1) % Memory::kCodeSteps == 0) memory_.codes_read(step).arrive();
    }
  }
  /// The slots of a step are full.
  __device__ __forceinline__ void await(int step) const {
    if (step % Memory::kCodeSteps == 0)
      memory_.codes_full(step).await(step / (Memory::kCodeSteps * Memory::kCodeSlots));
    memory_.full(step).await(step / Shape::kSlots);
  }
  /// The compiler must not move this after the next product.
  __device__ __forceinline__ static void keep(LeftFragment& left) {
    LeftFragment(&one)[1] = reinterpret_cast<LeftFragment(&)[1]>(left);
    hold(one);
  }

  /// A step's codes as a lane loads them: of 4 bits what are four neighbouring pairs of each of its two rows,
  /// of which every fourth pair of the quad is its own then.
  class StepCodes {
   public:
    __device__ __forceinline__ StepCodes(const TileProduct& tile, int step) : table_(tile.table_) {
      if constexpr (kTable) {
        load_matrices(
            words_, shared_address(tile.memory_.chunk(step, tile.first_ + tile.lane_ % 16, tile.lane_ / 16)));
        const uint32_t* const scales = tile.memory_.scales(step) + tile.first_ + tile.lane_place_.row;
        scale_[0] = scales[0];
        scale_[1] = scales[8];
        tile.transpose_.apply(words_[0], words_[1]);
        tile.transpose_.apply(words_[2], words_[3]);
      } else {
#pragma unroll
        for (int chunk = 0; chunk < kProducts; ++chunk)
          chunks_[chunk] =
              tile.memory_.chunk(step, tile.first_ + tile.lane_place_.row, chunk) + tile.lane_place_.column;
      }
    }
    __device__ __forceinline__ LeftFragment left(int product) const {
      LeftFragment left;
#pragma unroll
      for (int part = 0; part < 4; ++part) left.part[part] = pair(product, part % 2, part / 2);
      return left;
    }

   private:
    __device__ __forceinline__ uint32_t pair(int product, int lower, int right) const {
      if constexpr (kTable) {
        const uint32_t word = words_[product / 2 * 2 + lower];
        return multiplied<Short>(table_.pair(word, 2 * (product % 2) + right), scale_[lower]);
      } else {
        const char* const from = chunks_[product] + 8 * lower * kSwizzled + 8 * right;
        return pair_of_codes<Short>(*reinterpret_cast<const uint16_t*>(from), 0x4140);
      }
    }

    const PairTable& table_;
    uint32_t words_[4], scale_[2];   ///< of 4 bits
    const char* chunks_[kProducts];  ///< of 8 bits
  };

  const TilePlace& place_;
  const Memory memory_;
  const int lane_;
  const PairTable table_;
  const LanePlace lane_place_;
  const QuadTranspose transpose_;
  const int first_;  ///< of the warp's features in the tile
  Sums sums_[kRows / kRowsAtOnce][kRowsAtOnce / 8];
};

template <class Short, WeightForm kForm, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kTogether)
    many_rows_kernel(const __grid_constant__ QuantisedProduct job, const __grid_constant__ ProductMaps maps,
                     int splits, int feature_tiles) {
  using Memory = ManyRowsMemory<kForm, Shape>;
  let_next_kernel_start();
  const TilePlace place = TilePlace::of<Shape>(job, splits, feature_tiles);
  const Memory memory = {aligned_shared_memory()};
  const int thread = static_cast<int>(threadIdx.x);
  const RowShare16 share = {splits, place.split, Shape::kRows / kWarpTile};
  if (thread == Shape::kConsumers) {
    memory.set_up_barriers((splits - 1) * share.count() * kWarpTile * Shape::kFeatures *
                           static_cast<int>(sizeof(float)));
  }
  __syncthreads();
  if (thread >= Shape::kConsumers) {
    give_up_registers<Shape::kFillerRegisters>();
    if constexpr (kForm == WeightForm::kNestedFourBits) {
      constexpr int kThreads = kFillers * kWarp;
      for (int i = thread - Shape::kConsumers; i < 256; i += kThreads)
        memory.nested_map()[i] = __ldg(job.weights.nested_map + i);
      group_barrier(kFillersBarrier, kThreads);
    }
    SlotFiller<Short, kForm, Shape>(job, maps, place, memory).run();
    if (splits > 1) {
      __syncwarp();
      meet_in_cluster();
    }
    return;
  }
  take_registers<Shape::kRegisters>();
  if constexpr (Memory::kTable)
    PairTable(memory.from + Memory::kTablePlace)
        .template fill<Short>(job.weights.code_map, Shape::kConsumers);
  group_barrier(kConsumersBarrier, Shape::kConsumers);
  await_kernels_ahead();
  TileProduct<Short, kForm, Shape> product(place, memory);
  product.run();
  if (splits > 1) {
    meet_in_cluster();
    product.exchange(share);
  }
  group_barrier(kConsumersBarrier, Shape::kConsumers);  // the slots are free
  product.store_sums(share);
  group_barrier(kConsumersBarrier, Shape::kConsumers);
  TileOutput<Short, kForm, Shape>(job, place, memory).store(share);
}

template <class Short, WeightForm kForm, class Shape>
void launch(const QuantisedProduct& product, int splits, cudaStream_t stream) {
  using Memory = ManyRowsMemory<kForm, Shape>;
  const QuantisedWeights& weights = product.weights;
  const int64_t feature_tiles = gpu::divided_up(weights.out_features, Shape::kFeatures),
                row_tiles = gpu::divided_up(product.rows, Shape::kRows);
  const ProductMaps maps = {
      tensor_map(product.input, product.rows, weights.in_features * static_cast<int64_t>(sizeof(Bf16)),
                 Shape::kRows),
      tensor_map(weights.codes, weights.out_features,
                 weights.in_features / kBlockColumns * Memory::kStepCodes, Shape::kFeatures)};
  launch_early_in_clusters("many_rows_kernel", many_rows_kernel<Short, kForm, Shape>,
                           static_cast<unsigned>(feature_tiles * row_tiles * splits), Shape::kThreads,
                           Memory::kBytes, splits, stream, product, maps, splits,
                           static_cast<int>(feature_tiles));
}

template <class Short, WeightForm kForm>
void launch(const QuantisedProduct& product, const ProductPlan& plan, cudaStream_t stream) {
  const int splits = plan.splits;
  switch (plan.way) {
    case ProductWay::kTile128x64:
      return launch<Short, kForm, TileShape<2, 64, 5, 2>>(product, splits, stream);
    case ProductWay::kTile128x128:
      return launch<Short, kForm, TileShape<2, 128, 6, 1>>(product, splits, stream);
    default:
      return launch<Short, kForm, TileShape<2, 256, 4, 1>>(product, splits, stream);
  }
}

}  // namespace

void many_rows_product(const QuantisedProduct& product, const ProductPlan& plan, cudaStream_t stream) {
  with_type(product.type, [&](auto type) {
    using Short = decltype(type);
    switch (product.weights.form) {
      case WeightForm::kFourBits:
        return launch<Short, WeightForm::kFourBits>(product, plan, stream);
      case WeightForm::kNestedFourBits:
        return launch<Short, WeightForm::kNestedFourBits>(product, plan, stream);
      case WeightForm::kEightBits:
        return launch<Short, WeightForm::kEightBits>(product, plan, stream);
    }
  });
}

}  // namespace adtrain::kernels
