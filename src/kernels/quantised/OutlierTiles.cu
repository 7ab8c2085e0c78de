#include "base/Cuda.h"
#include "base/Launch.cuh"
#include "kernels/primitives/ByteInstructions.cuh"
#include "kernels/primitives/TransferInstructions.cuh"
#include "kernels/primitives/WarpgroupProducts.cuh"
#include "kernels/quantised/ApartColumns.cuh"
#include "kernels/quantised/OutlierKernels.h"

/// LLM.int8's product with its product of whole numbers by "wgmma" of bytes, of which Hopper multiplies twice
/// as many as numbers of 16 bits; cuBLASLt has kernels of Ampere alone for them. A thread block computes 128
/// rows × 256 features, half of the rows by each of two warpgroups. Codes of both operands stream through
/// slots of shared memory, 128 columns of the sum in a step, which one thread fills. Meanwhile other warps
/// gather what the end needs: the first columns apart, factors and bias.
///
/// Shared memory, 224 KiB:
///
///     slots     of (128 rows, 128 bytes) and (256 features, 128 bytes), swizzled
///     end       what the end needs
///     barriers  two a slot
namespace adtrain::kernels {
namespace {

constexpr int kGroups = 2, kGroupThreads = kWarpsOfGroup * kWarp, kConsumers = kGroups * kGroupThreads,
              kThreads = kConsumers + kGroupThreads;
constexpr int kTileRows = kOutlierTileRows, kTileFeatures = kOutlierTileFeatures;
static_assert(kTileRows == kGroups * kGroupRows && kTileFeatures == 8 * 32);
constexpr int kStepBytes = 128, kProductBytes = 32, kSlots = 4;
constexpr int kGatherers = kGroupThreads - kWarp;  ///< threads
constexpr int kRegisters = 216, kOtherRegisters = 64, kRegistersAtLaunch = 65536 / kThreads / 8 * 8;
static_assert(kConsumers * kRegisters + kGroupThreads * kOtherRegisters <= kThreads * kRegistersAtLaunch,
              "or warpgroups wait for registers for ever");
constexpr int kConsumersBarrier = 1, kEndBarrier = 2;

using Bytes = Tile<kStepBytes / sizeof(Bf16)>;

/// What the end of a tile needs.
template <class Short>
struct EndMemory {
  ApartColumns<Short, kTileRows, kTileFeatures> apart;
  float2 factor_and_bias[kTileFeatures];
};

/// Where things are in shared memory.
template <class Short>
struct TileMemory {
  static constexpr int kRowBytes = Bytes::bytes(kTileRows), kFeatureBytes = Bytes::bytes(kTileFeatures),
                       kSlotBytes = kRowBytes + kFeatureBytes;
  static constexpr int kEndPlace = kSlots * kSlotBytes, kBarrierPlace = kEndPlace + sizeof(EndMemory<Short>);
  static constexpr int kBytes = kBarrierPlace + 2 * kSlots * static_cast<int>(sizeof(TransferBarrier));
  static_assert(kBytes <= 227 * 1024);

  char* from;

  __device__ Bytes rows(int step) const {
    return {reinterpret_cast<Bf16*>(from + step % kSlots * kSlotBytes)};
  }
  __device__ Bytes features(int step) const {
    return {reinterpret_cast<Bf16*>(from + step % kSlots * kSlotBytes + kRowBytes)};
  }
  __device__ EndMemory<Short>& end() const { return *reinterpret_cast<EndMemory<Short>*>(from + kEndPlace); }
  __device__ TransferBarrier& full(int step) const { return barriers()[step % kSlots]; }
  __device__ TransferBarrier& read(int step) const { return barriers()[kSlots + step % kSlots]; }
  /// By one thread.
  __device__ void set_up_barriers() const {
    for (int slot = 0; slot < kSlots; ++slot) {
      full(slot).set_up(1);
      read(slot).set_up(kConsumers / kWarp);
    }
    show_barriers_to_copies();
  }

 private:
  __device__ TransferBarrier* barriers() const {
    return reinterpret_cast<TransferBarrier*>(from + kBarrierPlace);
  }
};

struct CodeMaps {
  TensorMap rows, features;
};

/// By one thread.
template <class Short>
__device__ void fill_slots(const TileMemory<Short>& memory, const CodeMaps& maps, int first_row,
                           int first_feature, int steps) {
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if (step >= kSlots) memory.read(step).await(step / kSlots - 1);
    TransferBarrier& full = memory.full(step);
    full.expect(TileMemory<Short>::kSlotBytes);
    start_copy(memory.rows(step).data, maps.rows, first_row, kStepBytes * step, full);
    start_copy(memory.features(step).data, maps.features, first_feature, kStepBytes * step, full);
    full.arrive();
  }
}

/// By kGatherers threads, of which this is number `thread`.
template <class Short>
__device__ void prepare_end(const OutlierProduct& job, EndMemory<Short>& end, int first_row,
                            int first_feature, int thread) {
  const QuantisedWeights& weights = job.product.weights;
  for (int i = thread; i < kTileFeatures; i += kGatherers) {
    const int64_t feature = min(int64_t{first_feature} + i, weights.out_features - 1);
    end.factor_and_bias[i] = {code_factor(weights, feature), bias_of<Short>(job.product, feature)};
  }
  if (const int columns = *job.apart.count; columns > 0)
    end.apart.template gather<kGatherers>(job, first_row, first_feature, 0, columns, thread);
  group_barrier_of_roles(kEndBarrier, kConsumers + kGatherers);
}

/// A thread of a warpgroup that multiplies. All of it is inlined by force, see WarpgroupInstructions.cuh.
template <class Short>
class TileOfProduct {
  static constexpr int kEights = kTileFeatures / 8;

 public:
  __device__ TileOfProduct(const OutlierProduct& job, const TileMemory<Short>& memory, int first_row,
                           int first_feature)
      : job_(job),
        memory_(memory),
        first_row_(first_row),
        first_feature_(first_feature),
        group_(__shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0)) {}

  __device__ __forceinline__ void run(int steps) {
    WholeSums sums[kEights];
#pragma unroll
    for (WholeSums& all : sums) all = {{0, 0, 0, 0}};
    take_sums(sums);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      memory_.full(step).await(step / kSlots);
      const uint64_t left = further(descriptor_of(memory_.rows(step)), group_ * kGroupRows * Bytes::kWidth),
                     right = descriptor_of(memory_.features(step));
      begin_products();
#pragma unroll
      for (int byte = 0; byte < kStepBytes; byte += kProductBytes) {
        constexpr int kElement = sizeof(Bf16);
        start_byte_product(sums, further(left, byte / kElement), further(right, byte / kElement));
      }
      close_products();
      products_arrived<1>();  // those of the step before
      if (step > 0) give_back(step - 1);
    }
    products_arrived<0>();
    take_sums(sums);
    group_barrier_of_roles(kEndBarrier, kConsumers + kGatherers);
    finish(sums);
  }

 private:
  __device__ __forceinline__ void give_back(int step) const {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) memory_.read(step).arrive();
  }
  /// Of the warp, in the tile.
  __device__ __forceinline__ int warp_row() const {
    return static_cast<int>(threadIdx.x) / kWarp * kWarpTile;
  }

  __device__ __forceinline__ void finish(const WholeSums (&sums)[kEights]) const {
    EndMemory<Short>& end = memory_.end();
    const LanePlace place = lane_place();
    const int row = first_row_ + warp_row() + place.row, last = job_.product.rows - 1;
    const float largest[2] = {job_.largest[min(row, last)], job_.largest[min(row + 8, last)]};
    Sums values[kEights];
#pragma unroll
    for (int i = 0; i < kEights; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 both = end.factor_and_bias[8 * i + place.column + k % 2];
        values[i].value[k] = fmaf(static_cast<float>(sums[i].value[k]), both.x * largest[k / 2], both.y);
      }
    }
    const int columns = *job_.apart.count;
#pragma unroll 1
    for (int first = 0; first < columns; first += kApartAtOnce) {
      if (first > 0) {
        group_barrier(kConsumersBarrier, kConsumers);
        end.apart.template gather<kConsumers>(job_, first_row_, first_feature_, first, columns, threadIdx.x);
        group_barrier(kConsumersBarrier, kConsumers);
      }
      end.apart.multiply(values, warp_row(), 0, columns - first);
    }
    store(values, row, 0);
    store(values, row + 8, 1);
  }

  /// Row `lower` of the two that the lane has values of. Four lanes exchange what they have of 32 features,
  /// so that each stores eight neighbours.
  __device__ __forceinline__ void store(const Sums (&values)[kEights], int row, int lower) const {
    constexpr int kLanes = 4;
    const QuantisedProduct& product = job_.product;
    const int64_t features = product.weights.out_features, of_row = int64_t{row} * features;
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const bool exists = row < product.rows;
#pragma unroll
    for (int first = 0; first < kEights; first += kLanes) {
      uint32_t pairs[kLanes];
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const int64_t feature = int64_t{first_feature_} + 8 * (first + i) + 2 * lane;
        float2 both = {activated(product, values[first + i].value[2 * lower]),
                       activated(product, values[first + i].value[2 * lower + 1])};
        if (product.sum != nullptr && exists && feature < features) {
          const float2 more = unpacked<Short>(
              *reinterpret_cast<const uint32_t*>(static_cast<const Short*>(product.sum) + of_row + feature));
          both.x += more.x, both.y += more.y;
        }
        pairs[i] = packed<Short>(both.x, both.y);
      }
#pragma unroll
      for (int apart = 1; apart < kLanes; apart *= 2) {
        const bool upper = (lane & apart) != 0;
#pragma unroll
        for (int i = 0; i < kLanes; ++i) {
          if ((i & apart) != 0) continue;
          const uint32_t taken = __shfl_xor_sync(kAllLanes, upper ? pairs[i] : pairs[i | apart], apart);
          if (upper) {
            pairs[i] = taken;
          } else {
            pairs[i | apart] = taken;
          }
        }
      }
      const int64_t feature = int64_t{first_feature_} + 8 * (first + lane);
      if (exists && feature < features) {
        *reinterpret_cast<uint4*>(static_cast<Short*>(product.output) + of_row + feature) = {
            pairs[0], pairs[1], pairs[2], pairs[3]};
      }
    }
  }

  const OutlierProduct& job_;
  const TileMemory<Short> memory_;
  const int first_row_, first_feature_, group_;
};

template <class Short>
__global__ void __launch_bounds__(kThreads, 1)
    outlier_tiles_kernel(const __grid_constant__ OutlierProduct job, const __grid_constant__ CodeMaps maps,
                         int row_tiles) {
  const TileMemory<Short> memory = {aligned_shared_memory()};
  const int tile = static_cast<int>(blockIdx.x), first_row = tile % row_tiles * kTileRows,
            first_feature = tile / row_tiles * kTileFeatures, thread = static_cast<int>(threadIdx.x);
  const int steps = (static_cast<int>(job.product.weights.in_features) + kStepBytes - 1) / kStepBytes;
  if (thread == kConsumers) memory.set_up_barriers();
  __syncthreads();
  if (thread >= kConsumers) {
    give_up_registers<kOtherRegisters>();
    if (thread == kConsumers) fill_slots(memory, maps, first_row, first_feature, steps);
    if (thread >= kConsumers + kWarp)
      prepare_end(job, memory.end(), first_row, first_feature, thread - kConsumers - kWarp);
    return;
  }
  take_registers<kRegisters>();
  TileOfProduct<Short>(job, memory, first_row, first_feature).run(steps);
}

}  // namespace

void outlier_product_by_tiles(const OutlierProduct& job, const int8_t* codes, cudaStream_t stream) {
  const QuantisedProduct& product = job.product;
  const QuantisedWeights& weights = product.weights;
  const auto row_tiles = gpu::divided_up(product.rows, kTileRows),
             feature_tiles = gpu::divided_up(weights.out_features, kTileFeatures);
  const CodeMaps maps = {tensor_map(codes, product.rows, weights.in_features, kTileRows),
                         tensor_map(weights.codes, weights.out_features, weights.in_features, kTileFeatures)};
  with_type(product.type, [&](auto type) {
    using Short = decltype(type);
    gpu::launch("outlier_tiles_kernel", outlier_tiles_kernel<Short>,
                static_cast<unsigned>(row_tiles * feature_tiles), kThreads, TileMemory<Short>::kBytes, stream,
                job, maps, static_cast<int>(row_tiles));
  });
}

}  // namespace adtrain::kernels
