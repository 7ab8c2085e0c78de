#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/primitives/HalfInstructions.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowVectors.cuh"
#include "kernels/quantised/QuantisedKernels.h"

namespace adtrain::kernels {

/// The norm of a product's input, done behind the product, so that the product waits for nothing:
///
///     W (γ (x − mean) / deviation + β) = (W (γ x) − mean · W γ) / deviation + W β
///
/// Only γ x is made before, rounded to the input's type. Mean and deviation are found beside the product,
/// from what lanes have loaded for it. γ and β are two more rows of the input; RMSNorm has neither mean nor
/// β.
///
/// A mean many times the deviation would take digits from the difference. So LayerNorm, which does not depend
/// on it, first takes a shift off x: the median of three of the row's elements, which no single outlier
/// moves.
///
/// In fp16 γ (x − shift) must be below 65504, and loses digits below 6e-5.
template <class Short, int kWarps, int kEights>
class InputNorm {
  static constexpr int kRows = 8 * kEights;

 public:
  /// Sums over columns of a row.
  struct Found {
    float sum = 0.0f, squares = 0.0f;
  };
  struct Moments {
    float mean, inverse;  ///< 1 / deviation
  };

  /// Of shared memory.
  static int bytes(const QuantisedProduct& job) {
    if (job.norm.weight == nullptr) return 0;
    return static_cast<int>(sizeof(Found)) * kWarps * kRows +
           static_cast<int>(sizeof(Short)) * static_cast<int>(job.weights.in_features);
  }

  /// `memory`: bytes(), aligned to 16.
  __device__ InputNorm(const QuantisedProduct& job, char* memory)
      : job_(job),
        found_(reinterpret_cast<Found*>(memory)),
        weight_(reinterpret_cast<Vector*>(found_ + kWarps * kRows)) {}

  __device__ bool exists() const { return job_.norm.weight != nullptr; }
  __device__ bool of_layer() const { return job_.norm.bias != nullptr; }

  /// Starts to copy γ. Before scale() copies_arrived() and a barrier must follow.
  __device__ void start(int threads) const {
    if (!exists()) return;
    constexpr int kLineVectors = 8;
    const int vectors = static_cast<int>(job_.weights.in_features) / kVectorWidth;
    for (int i = static_cast<int>(threadIdx.x); i < vectors; i += threads) {
      start_copy(weight_ + i, static_cast<const Vector*>(job_.norm.weight) + i);
      if (of_layer() && i % kLineVectors == 0) prefetch(static_cast<const Vector*>(job_.norm.bias) + i);
    }
  }
  /// Row `row` of the product's right operand: of the input, then γ, then β. Of rows that do not exist the
  /// input's last one, whose sums nobody stores.
  __device__ const Vector* row(int row) const {
    if (exists() && of_layer()) {
      if (row == job_.rows) return static_cast<const Vector*>(job_.norm.weight);
      if (row == job_.rows + 1) return static_cast<const Vector*>(job_.norm.bias);
    }
    const int vectors = static_cast<int>(job_.weights.in_features) / kVectorWidth;
    return static_cast<const Vector*>(job_.input) + min(row, job_.rows - 1) * vectors;
  }

  /// What is taken off x, as a pair of equal numbers. `first`: the row's first vector.
  __device__ uint32_t shift(const Vector& first) const {
    if (!of_layer()) return 0;
    const Floats values = unpacked<Short>(first);
    const float a = values.at[0], b = values.at[3], c = values.at[6];
    const float median = fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));
    return packed<Short>(median, median);
  }
  /// Replaces a vector x of row `row` by γ (x − shift), and counts the difference. `place`: among the row's
  /// vectors. Other rows stay.
  __device__ void scale(Vector& x, int place, int row, uint32_t shift, Found& found) const {
    const Vector moved = {less(x.x, shift), less(x.y, shift), less(x.z, shift), less(x.w, shift)};
    const Floats values = unpacked<Short>(moved);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      found.sum += values.at[i];
      found.squares = fmaf(values.at[i], values.at[i], found.squares);
    }
    const Vector weight = weight_[place];
    if (row < job_.rows) {
      x = {scaled(moved.x, weight.x), scaled(moved.y, weight.y), scaled(moved.z, weight.z),
           scaled(moved.w, weight.w)};
    }
  }
  /// Adds up what the four lanes of a quad have of a row, and stores it for moments(). By all lanes; before
  /// moments() a barrier must follow.
  __device__ void store(int row, Found found) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2) {
      found.sum += __shfl_xor_sync(kAllLanes, found.sum, apart);
      found.squares += __shfl_xor_sync(kAllLanes, found.squares, apart);
    }
    if (lane % 4 == 0) found_[kRows * warp + row] = found;
  }
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
  /// The product with a normed row. `product`: with its γ x; `of_weight`, `of_bias`: with γ and β, of
  /// LayerNorm alone.
  __device__ static float normed(float product, const Moments& moments, float of_weight, float of_bias) {
    return fmaf(moments.inverse, fmaf(-moments.mean, of_weight, product), of_bias);
  }

 private:
  __device__ static uint32_t less(uint32_t x, uint32_t shift) {
    using Pair = std::conditional_t<std::is_same_v<Short, __half>, __half2, __nv_bfloat162>;
    const Pair difference = __hsub2(reinterpret_cast<const Pair&>(x), reinterpret_cast<const Pair&>(shift));
    return reinterpret_cast<const uint32_t&>(difference);
  }
  __device__ static uint32_t scaled(uint32_t x, uint32_t weight) {
    if constexpr (std::is_same_v<Short, __half>) {
      return multiplied_half(x, weight);
    } else {
      return multiplied(x, weight);
    }
  }

  const QuantisedProduct& job_;
  Found* const found_;    ///< (warps, rows)
  Vector* const weight_;  ///< γ
};

}  // namespace adtrain::kernels
