#include <algorithm>

#include "base/Cuda.h"
#include "kernels/primitives/ConstantWords.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/primitives/WideProductInstructions.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/ManyRowsOutput.cuh"
#include "kernels/quantised/ManyRowsSlots.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// The product as its transpose: weights are the left operand of "wgmma", 64 features a warpgroup, and the
/// input's rows are the columns of the right one. Codes and inputs stream through slots of shared memory, 64
/// columns of the sum in a step. Codes become left operands in registers, scaled in 16 bit, while products of
/// operands before them are under way. Where there are few tiles, the thread blocks of a cluster share the
/// columns that are summed over. Then each adds up some rows of what they found, in the blocks' order.
///
/// Copies of codes and the table begin before the kernel has ended that writes the input, as weights are
/// constant.
namespace adtrain::kernels {
namespace {

constexpr int kConsumersBarrier = 1, kFillersBarrier = 2;

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
        part_(__shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / Shape::kPartThreads, 0)),
        first_(static_cast<int>(threadIdx.x) % Shape::kPartThreads / kWarp * kWarpTile),
        codes_(shared_address(memory.chunk(0, first_ + lane_place_.row, 0)) +
               (kTable ? 0 : lane_place_.column)),
        scales_(shared_address(memory.scales(0) + first_ + lane_place_.row)) {}

  __device__ __forceinline__ void run() {
#pragma unroll
    for (auto& part : sums_) {
#pragma unroll
      for (Sums& sums : part) sums = no_sums();
    }
    const auto steps = static_cast<unsigned>(place_.steps);
#pragma unroll 1
    for (unsigned step = part_; step < steps; step += Shape::kParts) multiply(step);
  }
  /// Adds the sums of other parts to those of the first one, in its threads. The block must have read its
  /// slots.
  __device__ __forceinline__ void add_parts() {
    if constexpr (Shape::kParts > 1) {
      constexpr int kOfSums = Shape::kPartThreads;
      float4* const others = memory_.sums_of_parts() + static_cast<int>(threadIdx.x) % kOfSums;
      if (part_ > 0) {
#pragma unroll
        for (int i = 0; i < kRows / 8; ++i) others[i * kOfSums] = as_vector(sums(i));
      }
      group_barrier(kConsumersBarrier, Shape::kConsumers);
      if (part_ > 0) return;
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) add(sums(i), others[i * kOfSums]);
    }
  }
  __device__ __forceinline__ bool has_sums() const {
    return part_ == 0;
  }
  /// Sends the sums of rows that other blocks of the cluster store to these, and adds theirs to the own ones.
  /// All of the cluster must have read their slots.
  __device__ __forceinline__ void exchange(const RowShare16& share) {
    constexpr int kOfSums = Shape::kPartThreads;
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
      Sums before = no_sums();
#pragma unroll 1
      for (int block = 0; block < share.block; ++block) add(before, from[block * most * kOfSums]);
      add(sums(i), as_vector(before));
#pragma unroll 1
      for (int block = share.block + 1; block < share.blocks; ++block)
        add(sums(i), from[block * most * kOfSums]);
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
  __device__ __forceinline__ static float4 as_vector(const Sums& sums) {
    const float(&all)[4] = sums.value;
    return {all[0], all[1], all[2], all[3]};
  }
  __device__ __forceinline__ static void add(Sums& sums, const float4& more) {
    float(&all)[4] = sums.value;
    all[0] += more.x, all[1] += more.y, all[2] += more.z, all[3] += more.w;
  }
  /// Those of eight rows.
  __device__ __forceinline__ Sums& sums(int number) {
    return sums_[8 * number / kRowsAtOnce][number % (kRowsAtOnce / 8)];
  }

  /// Adds the products of a step's columns. Left operands are made while the products before them are under
  /// way.
  __device__ __forceinline__ void multiply(unsigned step) {
    memory_.full(step).await(step / Shape::kSlots);
    const uint64_t right = descriptor_of(memory_.inputs(step));
    const StepCodes codes(*this, step);
    LeftFragment left[kProducts / 2][2];
#pragma unroll
    for (auto& part : sums_) take_sums(part);
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
      if (product % 2 == 0) {
        codes.left(left[product / 2], product);
        hold(left[product / 2]);
      }
      begin_products();
#pragma unroll
      for (int part = 0; part < kRows / kRowsAtOnce; ++part)
        start_wide_product<Short>(sums_[part], left[product / 2][product % 2],
                                  beyond(right, 16 * product + part * kRowsAtOnce * kBlockColumns));
      close_products();
    }
    products_arrived<0>();
#pragma unroll
    for (auto& part : sums_) take_sums(part);
#pragma unroll
    for (auto& both : left) hold(both);
    __syncwarp();
    if (lane_ == 0) memory_.read(step).arrive();
  }
  /// further(), in one addition: the address is in the low half, and has room there.
  __device__ __forceinline__ static uint64_t beyond(uint64_t descriptor, unsigned elements) {
    constexpr uint64_t kHigh = ~uint64_t{0} << 32;
    return (descriptor & kHigh) | (static_cast<uint32_t>(descriptor) + elements * sizeof(Bf16) / 16);
  }

  /// A step's codes, which become left operands as a lane loads them: of 4 bits a chunk of each of its two
  /// rows at once, of which it takes every fourth byte. Many short loads would keep shared memory busy.
  class StepCodes {
   public:
    __device__ __forceinline__ StepCodes(const TileProduct& tile, unsigned step)
        : tile_(tile), from_(known_from_here(tile.codes_from(step))) {
      if constexpr (kTable) {
        const uint32_t scales = known_from_here(tile.scales_ + step % Shape::kSlots * Memory::kScaleBytes);
        scale_[0] = load_constant_word(scales);
        scale_[1] = load_constant_word(scales + 8 * sizeof(uint32_t));
      }
    }
    /// Those of two neighbouring products.
    __device__ __forceinline__ void left(LeftFragment (&left)[2], int first_product) const {
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        if constexpr (kTable) {
          const uint4 words =
              load_constant_words((from_ ^ first_product / 2 * kChunk) + 8 * lower * kSwizzled);
          left[0].part[lower] = multiplied<Short>(tile_.pair(words.x), scale_[lower]);
          left[0].part[2 + lower] = multiplied<Short>(tile_.pair(words.y), scale_[lower]);
          left[1].part[lower] = multiplied<Short>(tile_.pair(words.z), scale_[lower]);
          left[1].part[2 + lower] = multiplied<Short>(tile_.pair(words.w), scale_[lower]);
        } else {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const uint32_t codes = (from_ ^ (first_product + i) * kChunk) + 8 * lower * kSwizzled;
            left[i].part[lower] = pair_of_codes<Short>(load_constant_half(codes), tile_.chosen_);
            left[i].part[2 + lower] = pair_of_codes<Short>(load_constant_half(codes + 8), tile_.chosen_);
          }
        }
      }
    }

   private:
    const TileProduct& tile_;
    const uint32_t from_;
    uint32_t scale_[2];  ///< of 4 bits
  };
  /// The lane's pair of the four in a word of 4-bit codes.
  __device__ __forceinline__ uint32_t pair(uint32_t word) const {
    return table_.pair(__byte_perm(word, 0, chosen_));
  }
  /// The address of the first codes that the lane loads in a step.
  __device__ __forceinline__ uint32_t codes_from(unsigned step) const {
    return (codes_ + step / Memory::kCodeSteps % Memory::kCodeSlots * Memory::kCodeBytes) ^
           step % Memory::kCodeSteps * Memory::kStepCodes;
  }

  const TilePlace& place_;
  const Memory memory_;
  const int lane_;
  const PairTable table_;
  const LanePlace lane_place_;
  const int part_, first_;         ///< the latter of the warp's features in the tile
  const uint32_t codes_, scales_;  ///< addresses of what the lane reads of the first slot
  /// Of 4 bits what chooses the lane's byte of a word, of 8 bits pair_of_codes()' argument. If the compiler
  /// knew that to be constant, it would keep it in a uniform register and copy it for each use.
  const uint32_t chosen_ = known_from_here(kTable ? 0x4440 + lane_ % 4 : 0x4140 + lane_ / kWarp);
  Sums sums_[kRows / kRowsAtOnce][kRowsAtOnce / 8];
};

template <class Short, WeightForm kForm, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
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
  group_barrier(kConsumersBarrier, Shape::kConsumers);  // the slots are free
  if (splits > 1) arrive_in_cluster();
  product.add_parts();
  if (splits > 1) {
    await_cluster();
    if (product.has_sums()) product.exchange(share);
    group_barrier(kConsumersBarrier, Shape::kConsumers);
  }
  if (product.has_sums()) product.store_sums(share);
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
      return launch<Short, kForm, TileShape<64, 8, 2>>(product, splits, stream);
    case ProductWay::kTile128x128:
      return launch<Short, kForm, TileShape<128, 8, 2>>(product, splits, stream);
    default:
      return launch<Short, kForm, TileShape<256, 4, 1>>(product, splits, stream);
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
