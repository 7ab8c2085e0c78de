#include <algorithm>

#include "base/Cuda.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/MatrixRows.h"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// The product as its transpose: weights are the left operand of "mma", 16 features a thread block, and the
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

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kFeatures = kWarpTile;                   ///< of a thread block
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

/// `kEights`: for how many times eight rows of the input.
template <class Short, WeightForm kForm, int kEights>
class FewRows {
  static constexpr bool kTable = kForm != WeightForm::kEightBits;
  static constexpr int kAhead = kEights <= 2 ? 4 : 8 / kEights;  ///< loads under way, of 64 columns each
  static constexpr int kPitch = kFeatures + 4;  ///< of a warp's sums; so that lanes use different banks
  static constexpr int kPartBytes = kWarps * 8 * kEights * kPitch * static_cast<int>(sizeof(float));

 public:
  static constexpr int kBytes = std::max(kTable ? PairTable::kBytes : 0, kPartBytes);

  __device__ FewRows(const QuantisedProduct& job, char* shared, const float* nested_map)
      : job_(job),
        nested_map_(nested_map),
        table_(shared),
        parts_(reinterpret_cast<float*>(shared)),
        place_(lane_place()),
        first_feature_(kFeatures * static_cast<int>(blockIdx.x)),
        warp_(static_cast<int>(threadIdx.x) / kWarp) {}

  /// `fill`: called when the first loads are under way; fills shared memory and is a barrier.
  template <class Fill>
  __device__ void run(Fill&& fill) {
    const int blocks = static_cast<int>(job_.weights.in_features) / kBlockColumns;
    Loaded loaded[kAhead];
    load_weights(loaded, warp_, blocks);
    fill(table_);
    await_kernels_ahead();
    load_inputs(loaded, warp_, blocks);
#pragma unroll
    for (Sums& sums : sums_) sums = no_sums();
    for (int first = warp_;;) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + kWarps * i < blocks) add(loaded[i]);
      }
      first += kWarps * kAhead;
      if (first >= blocks) break;
      load_weights(loaded, first, blocks);
      load_inputs(loaded, first, blocks);
    }
    meet_warps();
  }

 private:
  /// What a lane needs for 64 columns: codes and scales of its two features, and inputs.
  struct Loaded {
    LaneCodes<kForm> codes[2];
    StoredScale<kForm> scales[2];
    Vector inputs[kEights][kVectors];
  };

  /// Blocks of 64 columns: `first`, and every kWarps-th after it, as far as they are below `blocks`. Features
  /// and rows that do not exist are others instead, whose sums nobody stores.
  __device__ void load_weights(Loaded (&loaded)[kAhead], int first, int blocks) const {
    const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + kWarps * i >= blocks) break;
      const int column = kBlockColumns * (first + kWarps * i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t feature =
            min(int64_t{first_feature_ + place_.row + 8 * half}, job_.weights.out_features - 1);
        loaded[i].codes[half] = LaneCodes<kForm>::load(
            job_.weights, feature * job_.weights.in_features + column + kLaneColumns * quad);
        loaded[i].scales[half] =
            StoredScale<kForm>::load(job_.weights, block_of(job_.weights, feature, column));
      }
    }
  }
  __device__ void load_inputs(Loaded (&loaded)[kAhead], int first, int blocks) const {
    const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + kWarps * i >= blocks) break;
      const int column = kBlockColumns * (first + kWarps * i);
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const int64_t row = min(8 * eight + place_.row, job_.rows - 1);
        const auto* const from = static_cast<const Vector*>(job_.input) +
                                 (row * job_.weights.in_features + column) / kVectorWidth + kVectors * quad;
#pragma unroll
        for (int vector = 0; vector < kVectors; ++vector)
          loaded[i].inputs[eight][vector] = __ldcg(from + vector);
      }
    }
  }

  /// Adds the products of 64 columns.
  __device__ void add(const Loaded& loaded) {
    Sums found[kEights];
#pragma unroll
    for (Sums& sums : found) sums = no_sums();
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
      LeftFragment left;
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        left.part[part] = loaded.codes[part % 2].template pair<Short>(2 * product + part / 2, table_);
      }
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const Vector& inputs = loaded.inputs[eight][product / 2];
        multiply_add<Short>(kTable ? found[eight] : sums_[eight], left,
                            product % 2 == 0 ? inputs.x : inputs.z, product % 2 == 0 ? inputs.y : inputs.w);
      }
    }
    if constexpr (!kTable) return;
    const float scales[2] = {loaded.scales[0].value(job_.weights, nested_map_),
                             loaded.scales[1].value(job_.weights, nested_map_)};
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums_[eight].value[i] = fmaf(found[eight].value[i], scales[i / 2], sums_[eight].value[i]);
    }
  }

  /// Adds up what the warps found, in their order, and stores it.
  __device__ void meet_warps() const {
    __syncthreads();  // the table is not read any more
    constexpr int kOfWarp = 8 * kEights * kPitch;
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 8 * eight + place_.column + i % 2, feature = place_.row + 8 * (i / 2);
        parts_[kOfWarp * warp_ + kPitch * row + feature] = sums_[eight].value[i];
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kFeatures * job_.rows; i += kThreads) {
      const int row = i / kFeatures;
      const int64_t feature = first_feature_ + i % kFeatures;
      if (feature >= job_.weights.out_features) continue;
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += parts_[kOfWarp * warp + kPitch * row + i % kFeatures];
      if constexpr (!kTable) sum *= row_scale(job_.weights, feature);
      if (job_.bias != nullptr) sum += as_float(static_cast<const Short*>(job_.bias)[feature]);
      static_cast<Short*>(job_.output)[row * job_.weights.out_features + feature] = rounded_to<Short>(sum);
    }
  }

  const QuantisedProduct& job_;
  const float* const nested_map_;
  const PairTable table_;
  float* const parts_;  ///< (warps, rows, features), in the table's place
  const LanePlace place_;
  const int first_feature_, warp_;
  Sums sums_[kEights];
};

template <class Short, WeightForm kForm, int kEights>
__global__ void __launch_bounds__(kThreads) few_rows_kernel(const __grid_constant__ QuantisedProduct job) {
  __shared__ float nested_map[256];
  let_next_kernel_start();
  FewRows<Short, kForm, kEights>(job, dynamic_shared_memory(), nested_map).run([&](const PairTable& table) {
    if constexpr (kForm != WeightForm::kEightBits) table.template fill<Short>(job.weights.code_map, kThreads);
    if constexpr (kForm == WeightForm::kNestedFourBits)
      nested_map[threadIdx.x] = __ldg(job.weights.nested_map + threadIdx.x);
    __syncthreads();
  });
}

template <class Short, WeightForm kForm, int kEights>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  launch_early("few_rows_kernel", few_rows_kernel<Short, kForm, kEights>,
               static_cast<unsigned>(gpu::divided_up(product.weights.out_features, kFeatures)), kThreads,
               FewRows<Short, kForm, kEights>::kBytes, stream, product);
}

template <class Short, WeightForm kForm>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  if (product.rows <= 8) return launch<Short, kForm, 1>(product, stream);
  if (product.rows <= 16) return launch<Short, kForm, 2>(product, stream);
  if (product.rows <= 32) return launch<Short, kForm, 4>(product, stream);
  return launch<Short, kForm, kMostFewRows / 8>(product, stream);
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
