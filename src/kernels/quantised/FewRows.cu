#include <type_traits>

#include "base/Cuda.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/MatrixRows.h"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/NormedRows.cuh"
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

/// A lane's 16 codes of a row.
template <WeightForm kForm>
struct LaneCodes {
  static constexpr int kColumns = 16, kOfByte = kForm == WeightForm::kEightBits ? 1 : 2;
  using Words = std::conditional_t<kForm == WeightForm::kEightBits, uint4, uint2>;
  Words words;

  /// `first`: the index of the first in the flattened weights.
  __device__ static LaneCodes load(const QuantisedWeights& weights, int64_t first) {
    return {__ldcs(static_cast<const Words*>(weights.codes) + first / kColumns)};
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

/// Where things are in shared memory: what codes stand for, the same for all matrices that share their maps,
/// and the sums of the warps.
template <WeightForm kForm, int kEights, int kTiles>
struct FewRowsMemory {
  static constexpr bool kTable = kForm != WeightForm::kEightBits,
                        kNested = kForm == WeightForm::kNestedFourBits;
  static constexpr int kNestedValues = 256;
  static constexpr int kPitch = kWarpTile * kTiles + 4;  ///< of sums; so that lanes use different banks
  static constexpr int kPart = 8 * kEights * kPitch;     ///< sums of a warp
  static constexpr int kOfFloat = static_cast<int>(sizeof(float));
  static constexpr int kTableBytes = kTable ? PairTable::kBytes : 0,
                       kNestedBytes = kNested ? kNestedValues * kOfFloat : 0,
                       kBytes = kTableBytes + kNestedBytes + kWarps * kPart * kOfFloat;

  char* memory;  ///< kBytes, aligned to 128

  __device__ PairTable table() const { return PairTable(memory); }
  __device__ float* nested_map() const { return reinterpret_cast<float*>(memory + kTableBytes); }
  /// (warps, rows, features)
  __device__ float* parts() const { return reinterpret_cast<float*>(memory + kTableBytes + kNestedBytes); }
  /// Fills in what codes stand for, by all threads. A barrier must follow.
  template <class Short>
  __device__ void fill(const QuantisedWeights& weights) const {
    if constexpr (kTable) table().template fill<Short>(weights.code_map, kThreads);
    if constexpr (kNested) {
      for (int i = static_cast<int>(threadIdx.x); i < kNestedValues; i += kThreads)
        nested_map()[i] = __ldg(weights.nested_map + i);
    }
  }
};

/// A tile of 16 `kTiles` features, by a thread block, for 8 `kEights` rows of the input.
template <class Short, WeightForm kForm, int kEights, int kTiles>
class FewRows {
  static constexpr int kLaneColumns = LaneCodes<kForm>::kColumns;
  static constexpr int kProducts = kBlockColumns / kWarpTile;   ///< of 64 columns
  static constexpr int kVectors = kLaneColumns / kVectorWidth;  ///< of the input
  static_assert(kLaneColumns * 4 == kBlockColumns);
  static constexpr bool kTable = kForm != WeightForm::kEightBits;
  /// Loads under way, of 64 columns each: weights come from memory, inputs from the L2 cache.
  static constexpr int kWeightsAhead = (kEights == 1 ? 8 : 4) / kTiles, kInputsAhead = 4 / kEights;
  static_assert(kWeightsAhead % kInputsAhead == 0);

 public:
  using Memory = FewRowsMemory<kForm, kEights, kTiles>;
  static constexpr int kFeatures = kWarpTile * kTiles;

  __device__ FewRows(const QuantisedProduct& job, const Memory& memory, const NormedRows<Short>& rows)
      : job_(job),
        memory_(memory),
        table_(memory.table()),
        input_(rows.exist() ? rows.first() : static_cast<const Vector*>(job.input)),
        pitch_(rows.exist() ? rows.pitch() : static_cast<int>(job.weights.in_features) / kVectorWidth),
        place_(lane_place()),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        blocks_(static_cast<int>(job.weights.in_features) / kBlockColumns) {}

  /// Takes a tile and starts to load what is constant.
  __device__ void begin(int tile) {
    first_feature_ = kFeatures * tile;
#pragma unroll
    for (int i = 0; i < kWeightsAhead; ++i) load(weights_[i], warp_ + kWarps * i);
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      const Result result = this->result(i);
      if (!result.exists) continue;
      if constexpr (!kTable) scales_[i] = row_scale(job_.weights, result.feature);
    }
  }
  /// Once the input, the sum and what codes stand for are there. Before another tile uses the memory, a
  /// barrier must follow.
  __device__ void finish() {
    Inputs inputs[kInputsAhead];
#pragma unroll
    for (int i = 0; i < kInputsAhead; ++i) load(inputs[i], warp_ + kWarps * i);
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      const Result result = this->result(i);
      if (!result.exists) continue;
      biases_[i] = bias_of<Short>(job_, result.feature);  // which may just have been converted
      added_[i] = added_of<Short>(job_, result.place);
    }
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
        add(weights_[i], inputs[i % kInputsAhead]);
        load(weights_[i], block + kWarps * kWeightsAhead);
        load(inputs[i % kInputsAhead], block + kWarps * kInputsAhead);
      }
    }
    meet_warps();
  }

 private:
  static constexpr int kResults = (kFeatures * 8 * kEights + kThreads - 1) / kThreads;  ///< of a thread

  /// What the thread computes at last, of kResults.
  struct Result {
    bool exists;
    int row;
    int64_t feature, place;  ///< of the output
  };
  __device__ Result result(int number) const {
    const int i = number * kThreads + static_cast<int>(threadIdx.x), row = i / kFeatures;
    const int64_t feature = first_feature_ + i % kFeatures;
    return {row < job_.rows && feature < job_.weights.out_features, row, feature,
            row * job_.weights.out_features + feature};
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
      const int row = min(8 * eight + place_.row, job_.rows - 1);
      const Vector* const from =
          input_ + row * pitch_ + block * (kBlockColumns / kVectorWidth) + kVectors * quad_lane();
#pragma unroll
      for (int i = 0; i < kVectors; ++i) inputs.vectors[eight][i] = from[i];
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
        const float scales[2] = {weights.scales[tile][0].value(job_.weights, memory_.nested_map()),
                                 weights.scales[tile][1].value(job_.weights, memory_.nested_map())};
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
    constexpr int kPart = Memory::kPart, kPitch = Memory::kPitch;
    float* const parts = memory_.parts();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4 * kEights; ++i) {
        const int row = i / 4 * 8 + place_.column + i % 2,
                  feature = kWarpTile * tile + place_.row + 8 * (i / 2 % 2);
        parts[kPart * warp_ + kPitch * row + feature] = sums_[tile][i / 4].value[i % 4];
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      const Result result = this->result(i);
      if (!result.exists) continue;
      const int place = kPitch * result.row + static_cast<int>(result.feature - first_feature_);
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += parts[kPart * warp + place];
      if constexpr (!kTable) sum *= scales_[i];
      static_cast<Short*>(job_.output)[result.place] =
          rounded_to<Short>(activated(job_, sum + biases_[i]) + added_[i]);
    }
  }

  const QuantisedProduct& job_;
  const Memory memory_;
  const PairTable table_;
  const Vector* const input_;
  const int pitch_;  ///< vectors from a row of the input to the next
  const LanePlace place_;
  int first_feature_ = 0;
  const int warp_;
  const int blocks_;  ///< of 64 columns
  Weights weights_[kWeightsAhead];
  Sums sums_[kTiles][kEights];
  float biases_[kResults], scales_[kResults], added_[kResults];
};

/// Brings what a kernel to come reads into the L2 cache, by all threads of the grid.
__device__ void prefetch_all(const NextRead (&reads)[4]) {
  constexpr int64_t kLine = 128;
  const int64_t first = kLine * (int64_t{blockIdx.x} * blockDim.x + threadIdx.x),
                step = kLine * gridDim.x * blockDim.x;
#pragma unroll 1
  for (const NextRead& next : reads) {
    for (int64_t place = first; place < next.bytes; place += step)
      prefetch(static_cast<const char*>(next.from) + place);
  }
}

/// Weights are constant. So thread blocks start to load them, and make the table, before the kernel has ended
/// that writes the input. They also bring the weights of the products to come into the L2 cache, as memory
/// has nothing to do while a block of the network is between its products.
template <class Short, WeightForm kForm, int kEights, int kTiles>
__global__ void __launch_bounds__(kThreads, 2) few_rows_kernel(const __grid_constant__ QuantisedProduct job) {
  using Product = FewRows<Short, kForm, kEights, kTiles>;
  let_next_kernel_start();
  const typename Product::Memory memory = {dynamic_shared_memory()};
  const NormedRows<Short> rows(job, memory.memory + Product::Memory::kBytes);
  Product product(job, memory, rows);
  product.begin(static_cast<int>(blockIdx.x));
  rows.start(kThreads);
  memory.template fill<Short>(job.weights);
  prefetch_all(job.next);
  copies_arrived();
  await_kernels_ahead();
  __syncthreads();
  if (rows.exist()) {
    rows.fill(kWarps);
    __syncthreads();
  }
  product.finish();
}

template <class Short, WeightForm kForm, int kEights, int kTiles>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  using Product = FewRows<Short, kForm, kEights, kTiles>;
  launch_early("few_rows_kernel", few_rows_kernel<Short, kForm, kEights, kTiles>,
               static_cast<unsigned>(gpu::divided_up(product.weights.out_features, Product::kFeatures)),
               kThreads, Product::Memory::kBytes + NormedRows<Short>::bytes(product), stream, product);
}

/// Two tiles a thread block share its inputs and its table, where one would not leave multiprocessors idle.
template <class Short, WeightForm kForm, int kEights>
void launch_tiles(const QuantisedProduct& product, cudaStream_t stream) {
  if (gpu::divided_up(product.weights.out_features, kWarpTile) > product.processors)
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
