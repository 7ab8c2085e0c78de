#pragma once

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowVectors.cuh"
#include "kernels/quantised/QuantisedKernels.h"

namespace adtrain::kernels {

/// The rows of a product's input, normed, in the shared memory of each thread block: every thread block norms
/// all of them, so that no kernel before the product does. A warp takes a row at a time. The norm's
/// parameters are copied while the input is not there yet.
///
/// Rows lie 16 bytes further apart than they are long, so that lanes that read eight of them use different
/// banks.
template <class Short>
class NormedRows {
  static constexpr int kFewVectors = 4, kMostVectors = 8;  ///< of a lane
  static constexpr int kWidest = kMostVectors * kWarp * kVectorWidth;
  static_assert(norms_few_rows(1, kWidest) && !norms_few_rows(1, kWidest + kVectorWidth));

 public:
  /// Of shared memory.
  static int bytes(const QuantisedProduct& job) {
    if (job.norm.weight == nullptr) return 0;
    const int vectors = static_cast<int>(job.weights.in_features) / kVectorWidth;
    return static_cast<int>(sizeof(Vector)) * (2 * vectors + job.rows * (vectors + 1));
  }

  /// `memory`: bytes(), aligned to 16.
  __device__ NormedRows(const QuantisedProduct& job, char* memory)
      : job_(job),
        vectors_(static_cast<int>(job.weights.in_features) / kVectorWidth),
        weight_(reinterpret_cast<Vector*>(memory)) {}

  __device__ bool exist() const { return job_.norm.weight != nullptr; }
  __device__ const Vector* first() const { return rows(); }
  __device__ int pitch() const { return vectors_ + 1; }  ///< vectors from a row to the next

  /// Starts to copy the norm's parameters. Before fill() a barrier must follow copies_arrived().
  __device__ void start(int threads) const {
    if (!exist()) return;
    for (int i = static_cast<int>(threadIdx.x); i < vectors_; i += threads) {
      start_copy(weight_ + i, static_cast<const Vector*>(job_.norm.weight) + i);
      if (job_.norm.bias != nullptr) start_copy(bias() + i, static_cast<const Vector*>(job_.norm.bias) + i);
    }
  }
  /// Norms the rows by all warps. A barrier must follow.
  __device__ void fill(int warps) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    for (int row = warp; row < job_.rows; row += warps) {
      if (vectors_ <= kFewVectors * kWarp) {
        norm<kFewVectors>(row);
      } else {
        norm<kMostVectors>(row);
      }
    }
  }

 private:
  __device__ Vector* bias() const { return weight_ + vectors_; }
  __device__ Vector* rows() const { return weight_ + 2 * vectors_; }
  __device__ static int place(int v) { return v * kWarp + static_cast<int>(threadIdx.x) % kWarp; }

  /// The row stays packed in registers, in which codes of the weights lie meanwhile.
  template <int kVectors>
  __device__ void norm(int row) const {
    const Vector* const from = static_cast<const Vector*>(job_.input) + row * vectors_;
    Vector x[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (place(v) < vectors_) x[v] = __ldcg(from + place(v));
    }
    // One pass for mean and variance: over differences from an element, so that a mean far from 0 takes
    // nothing from their precision.
    const bool layer = job_.norm.bias != nullptr;
    const float near = layer ? unpacked<Short>(__ldcg(&from->x)).x : 0.0f;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (place(v) >= vectors_) continue;
      const Floats values = unpacked<Short>(x[v]);
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) {
        const float difference = values.at[i] - near;
        sum += difference;
        squares = fmaf(difference, difference, squares);
      }
    }
#pragma unroll
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, apart);
      squares += __shfl_xor_sync(kAllLanes, squares, apart);
    }
    const float per_element = 1.0f / static_cast<float>(vectors_ * kVectorWidth);
    const float offset_of_mean = layer ? sum * per_element : 0.0f, mean = near + offset_of_mean;
    const float variance = fmaxf(squares * per_element - offset_of_mean * offset_of_mean, 0.0f);
    const float inverse = rsqrtf(variance + job_.norm.epsilon);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (place(v) >= vectors_) continue;
      Floats values = unpacked<Short>(x[v]);
      const Floats scale = unpacked<Short>(weight_[place(v)]);
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) values.at[i] = (values.at[i] - mean) * inverse * scale.at[i];
      if (layer) {
        const Floats offset = unpacked<Short>(bias()[place(v)]);
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) values.at[i] += offset.at[i];
      }
      rows()[row * pitch() + place(v)] = packed<Short>(values);
    }
  }

  const QuantisedProduct& job_;
  const int vectors_;  ///< of a row
  Vector* const weight_;
};

}  // namespace adtrain::kernels
