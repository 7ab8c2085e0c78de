#include "base/Cuda.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/MatrixRows.h"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/quantised/FewRowsMemory.cuh"
#include "kernels/quantised/InputNorm.cuh"
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
/// that writes the input.
namespace adtrain::kernels {
namespace {

/// A tile of 16 `kTiles` features, by a cluster of `kSharers` thread blocks, for 8 `kEights` rows of the
/// input.
template <class Short, WeightForm kForm, int kEights, int kTiles, int kSharers>
class FewRows {
  static constexpr int kLaneColumns = LaneCodes<kForm>::kColumns;
  static constexpr int kProducts = kBlockColumns / kWarpTile;   ///< of 64 columns
  static constexpr int kVectors = kLaneColumns / kVectorWidth;  ///< of the input
  static_assert(kLaneColumns * 4 == kBlockColumns);
  static constexpr bool kTable = kForm != WeightForm::kEightBits;
  /// Loads under way, of 64 columns each: weights come from memory, inputs from the L2 cache.
  static constexpr int kWeightsAhead = (kEights == 1 ? 8 : 4) / kTiles,
                       kInputsAhead = kEights == 1 ? (kTable ? 4 : 2) : 4 / kEights;
  static_assert(kWeightsAhead % kInputsAhead == 0);
  /// Of so many times 64 columns the products have no branch between them. Where there are fewer, the rest is
  /// 0.
  static constexpr int kAtOnce = kInputsAhead > 1 ? 2 : 1;
  static constexpr int kShares = kWarps * kSharers;  ///< of the columns: one a warp

 public:
  using Memory = FewRowsMemory<kForm, kEights, kTiles, kSharers>;
  static constexpr int kFeatures = kWarpTile * kTiles;
  using Norm = InputNorm<Short, kWarps, kEights, kFeatures>;

  __device__ FewRows(const QuantisedProduct& job, const Memory& memory, const Norm& norm)
      : job_(job),
        memory_(memory),
        norm_(norm),
        table_(memory.table()),
        place_(lane_place()),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        share_(sharer() * kWarps + warp_),
        blocks_((static_cast<int>(job.weights.in_features) / kBlockColumns - share_ + kShares - 1) /
                kShares) {}

  /// Takes the cluster's tile and starts to load what is constant.
  __device__ void begin() {
    first_feature_ = kFeatures * (static_cast<int>(blockIdx.x) / kSharers);
    const int column = kBlockColumns * share_ + kLaneColumns * quad_lane();
    const auto width = static_cast<uint32_t>(job_.weights.in_features);
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      // Features and rows that do not exist are others instead, whose sums nobody stores.
      const auto last = static_cast<uint32_t>(job_.weights.out_features) - 1;
      first_[i] = min(static_cast<uint32_t>(first_feature_ + place_.row + 8 * i), last) * width + column;
    }
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      inputs_[eight] = row(8 * eight + place_.row) + column / kVectorWidth;
    }
#pragma unroll
    for (int i = 0; i < kWeightsAhead; ++i) load(weights_[i], i);
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      const Result result = this->result(i);
      if (!result.exists) continue;
      if constexpr (!kTable) scales_[i] = row_scale(job_.weights, result.feature);
      if (job_.bias != nullptr) prefetch(bias_at(result));
    }
  }
  /// Makes ready to receive what the other thread block finds. When this returns, both are there.
  __device__ void begin_sharing() const {
    if (sharer() == 0 && threadIdx.x == 0) {
      memory_.arrival().set_up(1);
      memory_.arrival().expect(Memory::kReceivedBytes);
      memory_.arrival().arrive();
    }
    show_barriers_to_copies();
    meet_in_cluster();
  }
  __device__ int first_feature() const {
    return first_feature_;
  }
  /// Once the input, the sum and what codes stand for are there. Before another tile uses the memory, a
  /// barrier must follow.
  __device__ void finish() {
    if constexpr (kTable) table_.begin();
    Inputs inputs[kInputsAhead];
#pragma unroll
    for (int i = 0; i < kInputsAhead; ++i) load(inputs[i], i);
    Vector beginnings[kEights];
    if (norm_.exists()) {
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) beginnings[eight] = __ldcg(row(8 * eight + place_.row));
    }
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      const Result result = this->result(i);
      if (!result.exists) continue;
      if (job_.bias != nullptr) biases_[i] = *bias_at(result);  // which may just have been converted
      if (job_.sum != nullptr) added_[i] = static_cast<const Short*>(job_.sum)[result.place];
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (Sums& sums : sums_[tile]) sums = no_sums();
    }
    if (norm_.exists()) {
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) shifts_[eight] = norm_.shift(beginnings[eight]);
    }
#pragma unroll 1
    for (int first = 0; first < blocks_; first += kWeightsAhead) {
#pragma unroll
      for (int i = 0; i < kWeightsAhead; i += kAtOnce) {
        if (first + i >= blocks_) break;
#pragma unroll
        for (int k = i; k < i + kAtOnce; ++k) {
          if (norm_.exists()) scale(inputs[k % kInputsAhead], first + k);
          add(weights_[k], inputs[k % kInputsAhead]);
        }
#pragma unroll
        for (int k = i; k < i + kAtOnce; ++k) {
          load(weights_[k], first + k + kWeightsAhead);
          load(inputs[k % kInputsAhead], first + k + kInputsAhead);
        }
      }
    }
    meet_warps();
  }

 private:
  __device__ static int sharer() {
    return static_cast<int>(blockIdx.x) % kSharers;
  }

  static constexpr int kResults = (kFeatures * 8 * kEights + kThreads - 1) / kThreads;  ///< of a thread

  /// What the thread computes at last, of kResults.
  struct Result {
    bool exists;
    int row, of_tile;        ///< of_tile: the feature, counted from the tile's first one
    int64_t feature, place;  ///< of the output
  };
  __device__ Result result(int number) const {
    const int i = number * kThreads + static_cast<int>(threadIdx.x), row = i / kFeatures,
              of_tile = i % kFeatures;
    const int64_t feature = first_feature_ + of_tile;
    return {row < job_.rows && feature < job_.weights.out_features, row, of_tile, feature,
            row * job_.weights.out_features + feature};
  }

  /// Of the input. Of rows that do not exist the last one, whose sums nobody stores.
  __device__ const Vector* row(int row) const {
    const int vectors = static_cast<int>(job_.weights.in_features) / kVectorWidth;
    return static_cast<const Vector*>(job_.input) + min(row, job_.rows - 1) * vectors;
  }

  /// What a lane needs of the weights for 64 columns: two features of each tile.
  struct Weights {
    LaneCodes<kForm> codes[kTiles][2];
    StoredScale<kForm> scales[kTiles][2];
  };
  struct Inputs {
    Vector vectors[kEights][kVectors];
  };
  __device__ const Short* bias_at(const Result& result) const {
    return static_cast<const Short*>(job_.bias) + result.feature;
  }

  // They load the warp's `number`th 64 columns. Where these do not exist, products with them are 0.
  __device__ void load(Weights& weights, int number) const {
    const bool exists = number < blocks_;
    if (kAtOnce == 1 && !exists) return;
    const uint32_t further = static_cast<uint32_t>(number) * (kShares * kBlockColumns);
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      auto& codes = weights.codes[i / 2][i % 2];
      auto& scale = weights.scales[i / 2][i % 2];
      if (exists) {
        codes = LaneCodes<kForm>::load(job_.weights, first_[i] + further);
        scale = StoredScale<kForm>::load(job_.weights, (first_[i] + further) >> job_.weights.block_shift);
      } else {
        scale = StoredScale<kForm>::none();
      }
    }
  }
  __device__ void load(Inputs& inputs, int number) const {
    const bool exists = number < blocks_;
    if (kAtOnce == 1 && !exists) return;
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      const Vector* const from = inputs_[eight] + number * (kShares * kBlockColumns / kVectorWidth);
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        inputs.vectors[eight][i] = exists ? __ldcg(from + i) : Vector{0, 0, 0, 0};
    }
  }
  /// Makes γ (x − shift) of rows x. Of columns that do not exist it leaves 0.
  __device__ void scale(Inputs& inputs, int number) {
    const int block = share_ + kShares * min(number, blocks_ - 1);
    const int vector = (kBlockColumns * block + kLaneColumns * quad_lane()) / kVectorWidth;
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      if (8 * eight >= job_.rows) break;
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        norm_.scale(inputs.vectors[eight][v], vector + v, number < blocks_ ? shifts_[eight] : 0,
                    found_[eight]);
    }
  }
  __device__ int quad_lane() const {
    return place_.column / 2;
  }

  /// Adds the products of 64 columns. Sums of their own for every other product leave the tensor cores less
  /// to wait for.
  __device__ void add(const Weights& weights, const Inputs& inputs) {
    constexpr int kChains = kEights * kTiles == 1 ? 2 : 1;
    Sums found[kTiles][kEights][kChains];
#pragma unroll
    for (int i = 0; i < kTiles * kEights * kChains; ++i)
      found[i / (kEights * kChains)][i / kChains % kEights][i % kChains] = no_sums();
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        LeftFragment left;
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          left.part[part] =
              weights.codes[tile][part % 2].template pair<Short>(2 * product + part / 2, table_);
        }
#pragma unroll
        for (int eight = 0; eight < kEights; ++eight) {
          const Vector& input = inputs.vectors[eight][product / 2];
          multiply_add<Short>(found[tile][eight][product % kChains], left,
                              product % 2 == 0 ? input.x : input.z, product % 2 == 0 ? input.y : input.w);
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float scales[2] = {1.0f, 1.0f};
      if constexpr (kTable) {
        for (int half = 0; half < 2; ++half)
          scales[half] = weights.scales[tile][half].value(job_.weights, memory_.nested_map());
      }
#pragma unroll
      for (int i = 0; i < 4 * kEights; ++i) {
        float of_block = found[tile][i / 4][0].value[i % 4];
        if constexpr (kChains > 1) of_block += found[tile][i / 4][kChains - 1].value[i % 4];
        float& sum = sums_[tile][i / 4].value[i % 4];
        sum = fmaf(of_block, scales[i / 2 % 2], sum);
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
    if (norm_.exists()) {
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) norm_.store(8 * eight + place_.row, found_[eight]);
    }
    __syncthreads();
    if constexpr (kSharers > 1) {
      if (sharer() > 0) return send();
    }
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      const Result result = this->result(i);
      if (!result.exists) continue;
      const int place = kPitch * result.row + result.of_tile;
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += parts[kPart * warp + place];
      if constexpr (kSharers > 1) {
        memory_.arrival().await(0);
        sum += memory_.received()[kFeatures * result.row + result.of_tile];
      }
      if constexpr (!kTable) sum *= scales_[i];
      if (norm_.exists()) sum = norm_.normed(sum, result.row, result.of_tile);
      if (job_.bias != nullptr) sum += as_float(biases_[i]);
      sum = activated(job_, sum);
      if (job_.sum != nullptr) sum += as_float(added_[i]);
      static_cast<Short*>(job_.output)[result.place] = rounded_to<Short>(sum);
    }
  }

  /// Adds up what the warps found and sends it to the cluster's first thread block.
  __device__ void send() const {
    constexpr int kOfRow = kFeatures / 4;  // four features a thread
    const int thread = static_cast<int>(threadIdx.x), row = thread / kOfRow, feature = thread % kOfRow * 4;
    if (row >= 8 * kEights) return;
    Sums sums = no_sums();
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float* const part = memory_.parts() + Memory::kPart * warp + Memory::kPitch * row + feature;
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.value[i] += part[i];
    }
    start_store(reinterpret_cast<float4*>(memory_.received()) + thread, sums, memory_.arrival(), 0);
  }

  const QuantisedProduct& job_;
  const Memory memory_;
  const Norm& norm_;
  AlignedPairTable table_;
  const LanePlace place_;
  int first_feature_ = 0;
  const int warp_, share_;
  const int blocks_;               ///< of 64 columns, that the warp has
  uint32_t first_[2 * kTiles];     ///< the lane's first code of each feature, in the flattened weights
  const Vector* inputs_[kEights];  ///< the lane's first vector of each row
  Weights weights_[kWeightsAhead];
  Sums sums_[kTiles][kEights];
  typename Norm::Found found_[kEights];  ///< of the lane's row
  uint32_t shifts_[kEights];
  float scales_[kResults];
  Short biases_[kResults], added_[kResults];  ///< where there are any
};

template <class Short, WeightForm kForm, int kEights, int kTiles, int kSharers>
__global__ void __launch_bounds__(kThreads, 2) few_rows_kernel(const __grid_constant__ QuantisedProduct job) {
  using Product = FewRows<Short, kForm, kEights, kTiles, kSharers>;
  let_next_kernel_start();
  const typename Product::Memory memory = {dynamic_shared_memory()};
  const typename Product::Norm norm(job, memory.memory + Product::Memory::kBytes);
  Product product(job, memory, norm);
  product.begin();
  norm.start(product.first_feature(), kThreads);
  memory.template fill<Short>(job.weights);
  if constexpr (kSharers > 1) product.begin_sharing();
  copies_arrived();
  await_kernels_ahead();
  __syncthreads();
  product.finish();
}

template <class Short, WeightForm kForm, int kEights, int kTiles, int kSharers = 1>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  using Product = FewRows<Short, kForm, kEights, kTiles, kSharers>;
  const int64_t tiles = gpu::divided_up(product.weights.out_features, Product::kFeatures);
  launch_early_in_clusters("few_rows_kernel", few_rows_kernel<Short, kForm, kEights, kTiles, kSharers>,
                           static_cast<unsigned>(kSharers * tiles), kThreads,
                           Product::Memory::kBytes + Product::Norm::bytes(product), kSharers, stream,
                           product);
}

/// Two tiles a thread block share its inputs and its table, where multiprocessors would have several thread
/// blocks of one: two of them without a table to be made are no loss. Where there are few tiles of many
/// columns, two thread blocks share a tile's columns.
template <class Short, WeightForm kForm, int kEights>
void launch_tiles(const QuantisedProduct& product, cudaStream_t stream) {
  constexpr int kOfProcessor = kForm == WeightForm::kEightBits ? 2 : 1;
  // Of 4 bits each of the two makes a table.
  constexpr int64_t kManyColumns = kForm == WeightForm::kEightBits ? 4096 : 8192;
  const int64_t tiles = gpu::divided_up(product.weights.out_features, kWarpTile);
  if (tiles > kOfProcessor * product.processors) return launch<Short, kForm, kEights, 2>(product, stream);
  if (tiles <= product.processors && product.weights.in_features >= kManyColumns &&
      product.norm.weight == nullptr)
    return launch<Short, kForm, kEights, 1, 2>(product, stream);
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
