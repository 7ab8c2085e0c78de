#include <algorithm>

#include "base/Cuda.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/MatrixRows.h"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// The product as its transpose: weights are the left operand of "mma", 16 features a tile, and the
/// input's rows are the 8 columns of the right one. Warps share the columns that are summed over, 64 at a
/// time, which lie in one block of an absmax. The sums of 64 columns are scaled in fp32.
///
/// A product of 16 columns may take them in any order, if both operands do. So lane t of a quad has the
/// neighbouring columns 16 t … 16 t + 15 of the 64, and columns 16 t + 4 s … + 3 are its part of product s:
/// codes and inputs go from memory to registers by wide loads, and codes become operands where they are.
///
/// Weights are constant. So thread blocks start to load them, and make the table, before the kernel has ended
/// that writes the input. They also bring the weights of the products to come into the L2 cache, as memory
/// has nothing to do while a block of the network is between its products.
namespace adtrain::kernels {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kFeatures = kWarpTile;                   ///< of a tile
constexpr int kLaneColumns = 16;                       ///< of a lane, of 64
constexpr int kProducts = kBlockColumns / kWarpTile;   ///< of 64 columns
constexpr int kVectors = kLaneColumns / kVectorWidth;  ///< of the input
static_assert(kLaneColumns * 4 == kBlockColumns);

/// A lane's 16 codes of a row.
template <WeightForm kForm>
struct LaneCodes {
  using Words = std::conditional_t<kForm == WeightForm::kEightBits, uint4, uint2>;
  Words words;

  /// `first`: the index of the first in the flattened weights.
  __device__ static LaneCodes load(const QuantisedWeights& weights, int64_t first) {
    return {__ldcs(static_cast<const Words*>(weights.codes) + first / kLaneColumns)};
  }
  /// Pair 0 … 7, in 16 bit.
  template <class Short>
  __device__ uint32_t pair(int number, const PairTable& table) const {
    if constexpr (kForm == WeightForm::kEightBits) {
      const uint32_t all[4] = {words.x, words.y, words.z, words.w};
      return pair_of_codes<Short>(__byte_perm(all[number / 2], 0, number % 2 == 0 ? 0x4140 : 0x4342));
    } else {
      return table.pair(number < 4 ? words.x : words.y, number % 4);
    }
  }
};

/// For 8 `Eights` rows of the input, by thread blocks of 16 `Tiles` features.
template <class Short, WeightForm kForm, int kEights, int kTiles>
class FewRows {
  static constexpr bool kTable = kForm != WeightForm::kEightBits;
  /// Loads under way, of 64 columns each: weights come from memory, inputs from the L2 cache.
  static constexpr int kWeightsAhead = (kEights == 1 ? 8 : 4) / kTiles, kInputsAhead = 4 / kEights;
  static_assert(kWeightsAhead % kInputsAhead == 0);
  static constexpr int kPitch = kFeatures * kTiles + 4;  ///< of sums; so that lanes use different banks
  static constexpr int kPart = 8 * kEights * kPitch;     ///< sums of a warp
  static constexpr int kPartBytes = kWarps * kPart * static_cast<int>(sizeof(float));

 public:
  static constexpr int kBytes = std::max(kTable ? PairTable::kBytes : 0, kPartBytes);

  __device__ FewRows(const QuantisedProduct& job, char* shared, const float* nested_map)
      : job_(job),
        nested_map_(nested_map),
        table_(shared),
        parts_(reinterpret_cast<float*>(shared)),
        place_(lane_place()),
        first_feature_(kFeatures * kTiles * static_cast<int>(blockIdx.x)),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        blocks_(static_cast<int>(job.weights.in_features) / kBlockColumns) {}

  /// `fill`: called when the first loads are under way; fills shared memory and is a barrier.
  template <class Fill>
  __device__ void run(Fill&& fill) {
    Weights weights[kWeightsAhead];
    Inputs inputs[kInputsAhead];
#pragma unroll
    for (int i = 0; i < kWeightsAhead; ++i) load(weights[i], warp_ + kWarps * i);
    fill(table_);
    prefetch_next();
    await_kernels_ahead();
#pragma unroll
    for (int i = 0; i < kInputsAhead; ++i) load(inputs[i], warp_ + kWarps * i);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (Sums& sums : sums_[tile]) sums = no_sums();
    }
#pragma unroll 1
    for (int first = warp_; first < blocks_; first += kWarps * kWeightsAhead) {
#pragma unroll
      for (int i = 0; i < kWeightsAhead; ++i) {
        const int block = first + kWarps * i;
        if (block >= blocks_) break;
        add(weights[i], inputs[i % kInputsAhead]);
        load(weights[i], block + kWarps * kWeightsAhead);
        load(inputs[i % kInputsAhead], block + kWarps * kInputsAhead);
      }
    }
    meet_warps();
  }

 private:
  __device__ void prefetch_next() const {
    constexpr int64_t kLine = 128;
    const int64_t first = kLine * (int64_t{blockIdx.x} * kThreads + threadIdx.x),
                  step = kLine * gridDim.x * kThreads;
#pragma unroll 1
    for (const NextRead& next : job_.next) {
      for (int64_t place = first; place < next.bytes; place += step)
        prefetch(static_cast<const char*>(next.from) + place);
    }
  }

  /// What a lane needs of the weights for 64 columns: two features of each tile.
  struct Weights {
    LaneCodes<kForm> codes[kTiles][2];
    StoredScale<kForm> scales[kTiles][2];
  };
  struct Inputs {
    Vector vectors[kEights][kVectors];
  };

  // They load 64 columns, where these exist. Features and rows that do not exist are others instead, whose
  // sums nobody stores.
  __device__ void load(Weights& weights, int block) const {
    if (block >= blocks_) return;
    const int column = kBlockColumns * block;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int64_t feature =
          min(int64_t{first_feature_ + place_.row + 8 * i}, job_.weights.out_features - 1);
      weights.codes[i / 2][i % 2] = LaneCodes<kForm>::load(
          job_.weights, feature * job_.weights.in_features + column + kLaneColumns * quad_lane());
      weights.scales[i / 2][i % 2] =
          StoredScale<kForm>::load(job_.weights, block_of(job_.weights, feature, column));
    }
  }
  __device__ void load(Inputs& inputs, int block) const {
    if (block >= blocks_) return;
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      const int64_t row = min(8 * eight + place_.row, job_.rows - 1);
      const auto* const from = static_cast<const Vector*>(job_.input) +
                               (row * blocks_ + block) * (kBlockColumns / kVectorWidth) +
                               kVectors * quad_lane();
#pragma unroll
      for (int i = 0; i < kVectors; ++i) inputs.vectors[eight][i] = __ldcg(from + i);
    }
  }
  __device__ int quad_lane() const {
    return place_.column / 2;
  }

  /// Adds the products of 64 columns.
  __device__ void add(const Weights& weights, const Inputs& inputs) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      Sums found[kEights];
#pragma unroll
      for (Sums& sums : found) sums = no_sums();
#pragma unroll
      for (int product = 0; product < kProducts; ++product) {
        LeftFragment left;
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          left.part[part] =
              weights.codes[tile][part % 2].template pair<Short>(2 * product + part / 2, table_);
        }
#pragma unroll
        for (int eight = 0; eight < kEights; ++eight) {
          const Vector& input = inputs.vectors[eight][product / 2];
          multiply_add<Short>(kTable ? found[eight] : sums_[tile][eight], left,
                              product % 2 == 0 ? input.x : input.z, product % 2 == 0 ? input.y : input.w);
        }
      }
      if constexpr (kTable) {
        const float scales[2] = {weights.scales[tile][0].value(job_.weights, nested_map_),
                                 weights.scales[tile][1].value(job_.weights, nested_map_)};
#pragma unroll
        for (int i = 0; i < 4 * kEights; ++i) {
          float& sum = sums_[tile][i / 4].value[i % 4];
          sum = fmaf(found[i / 4].value[i % 4], scales[i / 2 % 2], sum);
        }
      }
    }
  }

  /// Adds up what the warps found, in their order, and stores it.
  __device__ void meet_warps() const {
    __syncthreads();  // the table is not read any more
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4 * kEights; ++i) {
        const int row = i / 4 * 8 + place_.column + i % 2,
                  feature = kFeatures * tile + place_.row + 8 * (i / 2 % 2);
        parts_[kPart * warp_ + kPitch * row + feature] = sums_[tile][i / 4].value[i % 4];
      }
    }
    __syncthreads();
    constexpr int kAll = kFeatures * kTiles;
    for (int i = static_cast<int>(threadIdx.x); i < kAll * job_.rows; i += kThreads) {
      const int row = i / kAll;
      const int64_t feature = first_feature_ + i % kAll;
      if (feature >= job_.weights.out_features) continue;
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += parts_[kPart * warp + kPitch * row + i % kAll];
      if constexpr (!kTable) sum *= row_scale(job_.weights, feature);
      const int64_t place = row * job_.weights.out_features + feature;
      static_cast<Short*>(job_.output)[place] =
          rounded_to<Short>(result_of<Short>(job_, sum, feature, place));
    }
  }

  const QuantisedProduct& job_;
  const float* const nested_map_;
  const PairTable table_;
  float* const parts_;  ///< (warps, rows, features), in the table's place
  const LanePlace place_;
  const int first_feature_, warp_;
  const int blocks_;  ///< of 64 columns
  Sums sums_[kTiles][kEights];
};

template <class Short, WeightForm kForm, int kEights, int kTiles>
__global__ void __launch_bounds__(kThreads, 2) few_rows_kernel(const __grid_constant__ QuantisedProduct job) {
  __shared__ float nested_map[256];
  let_next_kernel_start();
  FewRows<Short, kForm, kEights, kTiles>(job, dynamic_shared_memory(), nested_map)
      .run([&](const PairTable& table) {
        if constexpr (kForm != WeightForm::kEightBits)
          table.template fill<Short>(job.weights.code_map, kThreads);
        if constexpr (kForm == WeightForm::kNestedFourBits)
          nested_map[threadIdx.x] = __ldg(job.weights.nested_map + threadIdx.x);
        __syncthreads();
      });
}

template <class Short, WeightForm kForm, int kEights, int kTiles>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  launch_early("few_rows_kernel", few_rows_kernel<Short, kForm, kEights, kTiles>,
               static_cast<unsigned>(gpu::divided_up(product.weights.out_features, kFeatures * kTiles)),
               kThreads, FewRows<Short, kForm, kEights, kTiles>::kBytes, stream, product);
}

/// Two tiles a thread block share its inputs and its table, where one would not leave multiprocessors idle.
template <class Short, WeightForm kForm, int kEights>
void launch_tiles(const QuantisedProduct& product, cudaStream_t stream) {
  if (gpu::divided_up(product.weights.out_features, kFeatures) > product.processors)
    return launch<Short, kForm, kEights, 2>(product, stream);
  return launch<Short, kForm, kEights, 1>(product, stream);
}

template <class Short, WeightForm kForm>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  if (product.rows <= 8) return launch_tiles<Short, kForm, 1>(product, stream);
  if (product.rows <= 16) return launch_tiles<Short, kForm, 2>(product, stream);
  return launch<Short, kForm, kMostFewRows / 8, 1>(product, stream);
}

}  // namespace

void few_rows_product(const QuantisedProduct& product, cudaStream_t stream) {
  with_type(product.type, [&](auto type) {
    using Short = decltype(type);
    switch (product.weights.form) {
      case WeightForm::kFourBits:
        return launch<Short, WeightForm::kFourBits>(product, stream);
      case WeightForm::kNestedFourBits:
        return launch<Short, WeightForm::kNestedFourBits>(product, stream);
      case WeightForm::kEightBits:
        return launch<Short, WeightForm::kEightBits>(product, stream);
    }
  });
}

}  // namespace adtrain::kernels
