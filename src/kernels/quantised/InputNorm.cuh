#pragma once

#include <cstdint>

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowVectors.cuh"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/quantised/QuantisedKernels.h"

namespace adtrain::kernels {

/// The norm of a product's input, done behind the product, so that the product waits for nothing:
///
///     W (γ (x − mean) / deviation + β) = ((W γ) x − mean · Σ W γ) / deviation + W β
///
/// W γ, each weight times the parameter of its column, is rounded to the input's type, and is made before x
/// is there. Σ W γ, the sums over the columns of just these numbers, and W β are known before; RMSNorm has
/// neither mean nor β. So nothing is rounded to 16 bits whose error grows with the mean. Mean and deviation
/// are found beside the product, by the tensor cores. The deviation's square is the mean of the squares less
/// the mean's square, in fp32: of a mean of 100 deviations it keeps three digits, as 10^4 of the 10^7 that
/// fp32 tells apart are lost.
///
/// In fp16 weights without their scale times γ, which are up to 127 γ in 8 bits, must be below 65504.
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

  /// Starts to copy γ, and what is known of the features from `first` on. Before weight() copies_arrived()
  /// and a barrier must follow. By kFeatures threads or more.
  __device__ void start(int64_t first, int threads) const {
    if (!exists()) return;
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < kFeatures && first + thread < job_.weights.out_features)
      known_[thread] = products(first + thread);
    const int vectors = static_cast<int>(job_.weights.in_features) / kVectorWidth;
    for (int i = thread; i < vectors; i += threads)
      start_copy(weight_ + i, static_cast<const Vector*>(job_.norm.weight) + i);
  }

  /// The lane's γ, which its weights are multiplied with. `place`: among the row's vectors.
  __device__ const Vector& weight(int place) const { return weight_[place]; }

  /// Counts the lane's right operands of two products, of 8 rows: a product of the rows with themselves,
  /// whose diagonal has the sums of squares, and with a row of ones, which makes their sums.
  __device__ static void count(const Vector& x, Sums& found) {
    const uint32_t ones = packed<Short>(1.0f, 1.0f);
    multiply_add<Short>(found, {{x.x, ones, x.y, ones}}, x.x, x.y);
    multiply_add<Short>(found, {{x.z, ones, x.w, ones}}, x.z, x.w);
  }
  /// Stores what was counted of 8 rows from `first` on for normed(). By all lanes; before normed() a barrier
  /// must follow.
  __device__ void store(int first, const Sums& found) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const auto [row, column] = lane_place();
    if (row / 2 * 2 != column) return;  // the lane has no part of the diagonal
    const bool odd = row % 2 == 1;
    found_[kRows * warp + first + row] = {odd ? found.value[3] : found.value[2],
                                          odd ? found.value[1] : found.value[0]};
  }
  /// The product with a normed row. `product`: (W γ) x; `feature`: counted from the first one.
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
  /// Σ W γ and W β of a feature; 0 of RMSNorm.
  __device__ float2 products(int64_t feature) const {
    if (!of_layer()) return {0.0f, 0.0f};
    return {__ldg(job_.norm.products + feature),
            __ldg(job_.norm.products + job_.weights.out_features + feature)};
  }

  const QuantisedProduct& job_;
  Found* const found_;    ///< (warps, rows)
  float2* const known_;   ///< (features): Σ W γ and W β
  Vector* const weight_;  ///< γ
};

}  // namespace adtrain::kernels
