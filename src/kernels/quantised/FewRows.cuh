#pragma once

#include <cstdint>

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/MatrixRows.h"
#include "kernels/primitives/RowVectors.cuh"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/primitives/TransferInstructions.cuh"
#include "kernels/quantised/FewRowsMemory.cuh"
#include "kernels/quantised/FewRowsWeights.cuh"
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
/// Weights are constant. So thread blocks load them, and make operands of as many as there are registers for,
/// before the kernel has ended that writes the input: what stands behind the wait for it is what a step of
/// decoding waits for.
namespace adtrain::kernels {

/// A tile of 16 `kTiles` features, by a cluster of `kSharers` thread blocks, for 8 `kEights` rows of the
/// input. `kNorm`: whether it is normed; `kLate`: whether a warp may have more than kEarly times 64 columns.
template <class Short, WeightForm kForm, int kEights, int kTiles, int kSharers, bool kNorm, bool kLate>
class FewRows {
  using Weights = StoredWeights<kForm, kTiles>;
  using Operands = WeightOperands<kTiles>;
  static constexpr int kLaneColumns = LaneCodes<kForm>::kColumns;
  static constexpr int kVectors = kLaneColumns / kVectorWidth;  ///< of the input
  static_assert(kLaneColumns * 4 == kBlockColumns);
  static constexpr bool kTable = kForm != WeightForm::kEightBits;

 public:
  /// So many times 64 columns are operands before the input is there.
  static constexpr int kEarly = (kEights == 1 ? 4 : 2) / kTiles;

 private:
  /// Loads under way, of 64 columns each: weights come from memory, inputs from the L2 cache.
  static constexpr int kWeightsAhead = 4 / kTiles, kInputsAhead = kEights * kTiles <= 2 ? 2 : 1;
  /// Of so many times 64 columns the products have no branch between them. Where there are fewer, the rest is
  /// 0.
  static constexpr int kAtOnce = kEights == 1 ? 2 : 1;
  static_assert(kEarly % kInputsAhead == 0 && kWeightsAhead % kInputsAhead == 0 &&
                kInputsAhead % kAtOnce == 0);
  static_assert(kSharers == 1 || !kNorm);            // what a norm counts is of one thread block
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
    for (int i = 0; i < kEarly; ++i) load(early_weights_[i], i);
    if constexpr (kLate) {
#pragma unroll
      for (int i = 0; i < kWeightsAhead; ++i) load(weights_[i], kEarly + i);
    }
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
  /// Once what codes stand for and the norm's parameters are there: makes operands of weights.
  __device__ void prepare() {
    if constexpr (kTable) table_.begin();
#pragma unroll
    for (int i = 0; i < kEarly; ++i) {
      early_[i] = operands(early_weights_[i], i);
      early_[i].make_here();
    }
  }
  /// Once the input and the sum are there. Before another tile uses the memory, a barrier must follow.
  __device__ void finish() {
    Inputs inputs[kInputsAhead];
#pragma unroll
    for (int i = 0; i < kInputsAhead; ++i) load(inputs[i], i);
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      const Result result = this->result(i);
      if (!result.exists) continue;
      if (job_.bias != nullptr) biases_[i] = *bias_at(result);  // which may just have been converted
      if (job_.sum != nullptr) added_[i] = static_cast<const Short*>(job_.sum)[result.place];
    }
#pragma unroll
    for (int i = 0; i < kTiles * kEights; ++i) sums_[i / kEights][i % kEights] = no_sums();
#pragma unroll
    for (Sums& counted : counted_) counted = no_sums();
    add_early(inputs);
    if constexpr (kLate) add_late(inputs);
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

  struct Inputs {
    Vector vectors[kEights][kVectors];
  };
  __device__ const Short* bias_at(const Result& result) const {
    return static_cast<const Short*>(job_.bias) + result.feature;
  }

  // They load the warp's `number`th 64 columns. Where these do not exist, products with them are 0, or are
  // not computed.
  __device__ void load(Weights& weights, int number) const {
    const bool exists = number < blocks_;
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
  __device__ int quad_lane() const {
    return place_.column / 2;
  }

  /// The operands of the warp's `number`th 64 columns, times the norm's parameters.
  __device__ Operands operands(const Weights& weights, int number) const {
    Vector factors[kVectors];
    if constexpr (kNorm) {
      const int block = number < blocks_ ? share_ + kShares * number : 0;
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        factors[i] = norm_.weight((kBlockColumns * block + kLaneColumns * quad_lane()) / kVectorWidth + i);
    }
    Operands made;
#pragma unroll
    for (int i = 0; i < kTiles * kProducts; ++i) {
      const int tile = i / kProducts, product = i % kProducts;
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int pair = 2 * product + part / 2;
        uint32_t& operand = made.left[tile][product].part[part];
        operand = weights.codes[tile][part % 2].template pair<Short>(pair, table_);
        if constexpr (kNorm) operand = multiplied<Short>(operand, word_of(factors[pair / 4], pair % 4));
      }
    }
    if constexpr (kTable) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i)
        made.scales[i / 2][i % 2] = weights.scales[i / 2][i % 2].value(job_.weights, memory_.nested_map());
    }
    return made;
  }

  /// Adds the products of the columns whose operands have been made. `inputs`: the first ones; leaves those
  /// that follow.
  __device__ void add_early(Inputs (&inputs)[kInputsAhead]) {
#pragma unroll
    for (int i = 0; i < kEarly; i += kAtOnce) {
      if (i >= blocks_) break;
#pragma unroll
      for (int k = i; k < i + kAtOnce; ++k) add(early_[k], inputs[k % kInputsAhead]);
#pragma unroll
      for (int k = i; k < i + kAtOnce; ++k) load(inputs[k % kInputsAhead], k + kInputsAhead);
    }
  }
  /// Adds those of all others.
  __device__ void add_late(Inputs (&inputs)[kInputsAhead]) {
#pragma unroll 1
    for (int first = kEarly; first < blocks_; first += kWeightsAhead) {
#pragma unroll
      for (int i = 0; i < kWeightsAhead; i += kAtOnce) {
        if (first + i >= blocks_) break;
#pragma unroll
        for (int k = i; k < i + kAtOnce; ++k) add(operands(weights_[k], first + k), inputs[k % kInputsAhead]);
#pragma unroll
        for (int k = i; k < i + kAtOnce; ++k) {
          load(weights_[k], first + k + kWeightsAhead);
          load(inputs[k % kInputsAhead], first + k + kInputsAhead);
        }
      }
    }
  }
  /// Adds the products of 64 columns.
  __device__ void add(const Operands& weights, const Inputs& inputs) {
    if constexpr (kNorm) {
#pragma unroll
      for (int i = 0; i < kEights * kVectors; ++i)
        Norm::count(inputs.vectors[i / kVectors][i % kVectors], counted_[i / kVectors]);
    }
    Sums found[kTiles][kEights];
#pragma unroll
    for (int i = 0; i < kTiles * kEights; ++i) found[i / kEights][i % kEights] = no_sums();
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
#pragma unroll
      for (int i = 0; i < kTiles * kEights; ++i) {
        const Vector& input = inputs.vectors[i % kEights][product / 2];
        multiply_add<Short>(found[i / kEights][i % kEights], weights.left[i / kEights][product],
                            product % 2 == 0 ? input.x : input.z, product % 2 == 0 ? input.y : input.w);
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles * kEights; ++i) {
      Sums& sums = sums_[i / kEights][i % kEights];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float of_columns = found[i / kEights][i % kEights].value[k];
        float& sum = sums.value[k];
        sum = kTable ? fmaf(of_columns, weights.scales[i / kEights][k / 2], sum) : sum + of_columns;
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
    if constexpr (kNorm) {
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) norm_.store(8 * eight, counted_[eight]);
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
      if constexpr (kNorm) sum = norm_.normed(sum, result.row, result.of_tile);
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
  Weights early_weights_[kEarly], weights_[kWeightsAhead];
  Operands early_[kEarly];
  Sums sums_[kTiles][kEights];
  Sums counted_[kEights];  ///< by the norm
  float scales_[kResults];
  Short biases_[kResults], added_[kResults];  ///< where there are any
};

}  // namespace adtrain::kernels
