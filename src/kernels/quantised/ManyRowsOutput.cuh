#pragma once

#include <cstdint>

#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/ManyRowsSlots.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// What follows the sums of a tile of ManyRows.cu.
namespace adtrain::kernels {

/// The rows of a tile that a thread block of the cluster stores, as units of 16.
struct RowShare16 {
  int blocks, block, units;

  __device__ int first_of(int number) const { return units * number / blocks; }
  __device__ int first() const { return first_of(block); }
  __device__ int count() const { return first_of(block + 1) - first(); }
  __device__ int owner(int unit) const { return ((unit + 1) * blocks - 1) / units; }
  /// No block stores more.
  __device__ int most() const { return (units + blocks - 1) / blocks; }
};

/// Stores the rows of the tile that are this block's, of the threads that multiply each a row's four
/// neighbours at once. It is a loop without GELU or one with it, whose code is much longer.
template <class Short, WeightForm kForm, class Shape>
class TileOutput {
  static constexpr int kAtOnce = 4, kOfRow = Shape::kFeatures / kAtOnce;
  static constexpr int kRowsAtOnce = Shape::kConsumers / kOfRow;

 public:
  __device__ TileOutput(const QuantisedProduct& job, const TilePlace& place,
                        const ManyRowsMemory<kForm, Shape>& memory)
      : job_(job),
        place_(place),
        memory_(memory),
        column_(kAtOnce * (static_cast<int>(threadIdx.x) % kOfRow)) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t feature = min(int64_t{place.first_feature} + column_ + i, job.weights.out_features - 1);
      factor_[i] = kForm == WeightForm::kEightBits ? row_scale(job.weights, feature) : 1.0f;
      bias_[i] = bias_of<Short>(job, feature);
    }
  }
  __device__ __forceinline__ void store(const RowShare16& share) const {
    const int first = kWarpTile * share.first() + static_cast<int>(threadIdx.x) / kOfRow,
              end = min(kWarpTile * (share.first() + share.count()), job_.rows - place_.first_row);
    if (place_.first_feature + column_ >= job_.weights.out_features) return;
    if (job_.gelu) {
#pragma unroll 1
      for (int row = first; row < end; row += kRowsAtOnce) {
        float values[kAtOnce];
        load(values, row);
#pragma unroll
        for (float& value : values) value = activated(job_, value);
        store(values, row);
      }
    } else {
#pragma unroll 4
      for (int row = first; row < end; row += kRowsAtOnce) {
        float values[kAtOnce];
        load(values, row);
        store(values, row);
      }
    }
  }

 private:
  __device__ __forceinline__ void load(float (&values)[kAtOnce], int row) const {
    const float4 sums = *reinterpret_cast<const float4*>(memory_.sums(row) + column_);
    const float all[] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) values[i] = fmaf(all[i], factor_[i], bias_[i]);
  }
  __device__ __forceinline__ void store(float (&values)[kAtOnce], int row) const {
    const int64_t features = job_.weights.out_features,
                  own = (place_.first_row + row) * features + place_.first_feature + column_;
    auto* const to = static_cast<Short*>(job_.output) + own;
    const auto* const more = static_cast<const Short*>(job_.sum) + own;
    if (features % kAtOnce == 0) {
      if (job_.sum != nullptr) {
        const uint2 both = __ldcg(reinterpret_cast<const uint2*>(more));
        const float2 low = unpacked<Short>(both.x), high = unpacked<Short>(both.y);
        values[0] += low.x, values[1] += low.y, values[2] += high.x, values[3] += high.y;
      }
      *reinterpret_cast<uint2*>(to) = {packed<Short>(values[0], values[1]),
                                       packed<Short>(values[2], values[3])};
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kAtOnce && place_.first_feature + column_ + i < features; ++i) {
      const float value = i == 0 ? values[0] : i == 1 ? values[1] : i == 2 ? values[2] : values[3];
      to[i] = rounded_to<Short>(job_.sum == nullptr ? value : value + as_float(more[i]));
    }
  }

  const QuantisedProduct& job_;
  const TilePlace& place_;
  const ManyRowsMemory<kForm, Shape>& memory_;
  const int column_;
  float factor_[kAtOnce], bias_[kAtOnce];
};

}  // namespace adtrain::kernels
