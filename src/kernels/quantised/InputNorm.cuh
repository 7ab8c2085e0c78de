#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowVectors.cuh"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/quantised/QuantisedKernels.h"

namespace adtrain::kernels {

/// The norm of a product's input, done behind the product, so that the product waits for nothing:
///
///     W (γ (x − mean) / deviation + β) = (W (γ x) − mean · W γ) / deviation + W β
///
/// Only γ x is made before, rounded to the input's type. Mean and deviation are found beside the product,
/// from what lanes have loaded for it. W γ and W β are known before; RMSNorm has neither mean nor β.
///
/// A mean many times the deviation would take digits from the difference. So LayerNorm, which does not depend
/// on it, first takes a shift off x: the median of three of the row's elements, which no single outlier
/// moves.
///
/// In fp16 γ (x − shift) must be below 65504, and loses digits below 6e-5.
///
/// A thread block has kFeatures of the product.
template <class Short, int kWarps, int kEights, int kFeatures>
class InputNorm {
  static constexpr int kRows = 8 * kEights;

 public:
  /// Sums over columns of a row.
  struct Found {
    float sum = 0.0f, squares = 0.0f;
  };

  /// Of shared memory.
  static int bytes(const QuantisedProduct& job) {
    if (job.norm.weight == nullptr) return 0;
    return static_cast<int>(sizeof(Found)) * kWarps * kRows + static_cast<int>(sizeof(float2)) * kFeatures +
           static_cast<int>(sizeof(Short)) * static_cast<int>(job.weights.in_features);
  }

  /// `memory`: bytes(), aligned to 16.
  __device__ InputNorm(const QuantisedProduct& job, char* memory)
      : job_(job),
        found_(reinterpret_cast<Found*>(memory)),
        known_(reinterpret_cast<float2*>(found_ + kWarps * kRows)),
        weight_(reinterpret_cast<Vector*>(known_ + kFeatures)) {}

  __device__ bool exists() const { return job_.norm.weight != nullptr; }
  __device__ bool of_layer() const { return job_.norm.products != nullptr; }

  /// Starts to copy γ, and what is known of the features from `first` on. Before scale() copies_arrived() and
  /// a barrier must follow. By kFeatures threads or more.
  __device__ void start(int64_t first, int threads) const {
    if (!exists()) return;
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < kFeatures && first + thread < job_.weights.out_features)
      known_[thread] = products(first + thread);
    const int vectors = static_cast<int>(job_.weights.in_features) / kVectorWidth;
    for (int i = thread; i < vectors; i += threads)
      start_copy(weight_ + i, static_cast<const Vector*>(job_.norm.weight) + i);
  }

  /// What is taken off x, as a pair of equal numbers. `first`: the row's first vector.
  __device__ uint32_t shift(const Vector& first) const {
    if (!of_layer()) return 0;
    const Floats values = unpacked<Short>(first);
    const float a = values.at[0], b = values.at[3], c = values.at[6];
    const float median = fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));
    return packed<Short>(median, median);
  }
  /// Replaces a vector x by γ (x − shift), and counts the difference. `place`: among the row's vectors.
  __device__ void scale(Vector& x, int place, uint32_t shift, Found& found) const {
    const Vector moved = {less(x.x, shift), less(x.y, shift), less(x.z, shift), less(x.w, shift)};
    const Floats values = unpacked<Short>(moved);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      found.sum += values.at[i];
      found.squares = fmaf(values.at[i], values.at[i], found.squares);
    }
    const Vector weight = weight_[place];
    x = {multiplied<Short>(moved.x, weight.x), multiplied<Short>(moved.y, weight.y),
         multiplied<Short>(moved.z, weight.z), multiplied<Short>(moved.w, weight.w)};
  }
  /// Adds up what the four lanes of a quad have of a row, and stores it for normed(). By all lanes; before
  /// normed() a barrier must follow.
  __device__ void store(int row, Found found) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
      found.sum += __shfl_xor_sync(kAllLanes, found.sum, apart);
      found.squares += __shfl_xor_sync(kAllLanes, found.squares, apart);
    }
    if (lane % 4 == 0) found_[kRows * warp + row] = found;
  }
  /// The product with a normed row. `product`: with its γ x; `feature`: counted from the first one.
  __device__ float normed(float product, int row, int feature) const {
    const auto [mean, inverse] = moments(row);
    return fmaf(inverse, fmaf(-mean, known_[feature].x, product), known_[feature].y);
  }

 private:
  struct Moments {
    float mean, inverse;  ///< 1 / deviation
  };
  __device__ Moments moments(int row) const {
    Found all;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const Found part = found_[kRows * warp + row];
      all.sum += part.sum;
      all.squares += part.squares;
    }
    const float per_element = 1.0f / static_cast<float>(job_.weights.in_features);
    const float mean = of_layer() ? all.sum * per_element : 0.0f;
    return {mean, rsqrtf(fmaxf(all.squares * per_element - mean * mean, 0.0f) + job_.norm.epsilon)};
  }
  /// W γ and W β of a feature; 0 of RMSNorm.
  __device__ float2 products(int64_t feature) const {
    if (!of_layer()) return {0.0f, 0.0f};
    return {__ldg(job_.norm.products + feature),
            __ldg(job_.norm.products + job_.weights.out_features + feature)};
  }
  __device__ static uint32_t less(uint32_t x, uint32_t shift) {
    using Pair = std::conditional_t<std::is_same_v<Short, __half>, __half2, __nv_bfloat162>;
    const Pair difference = __hsub2(reinterpret_cast<const Pair&>(x), reinterpret_cast<const Pair&>(shift));
    return reinterpret_cast<const uint32_t&>(difference);
  }

  const QuantisedProduct& job_;
  Found* const found_;    ///< (warps, rows)
  float2* const known_;   ///< (features): W γ and W β
  Vector* const weight_;  ///< γ
};

}  // namespace adtrain::kernels
