#pragma once

#include <algorithm>

#include "kernels/primitives/Tile.cuh"

/// Rotary position embedding (RoPE) of queries and keys in registers, within kernels. Gradients are rotated
/// back.
namespace adtrain::kernels {

/// No rotation: for values, and for blocks without rope.
struct NoRope {
  template <int Count>
  __device__ void apply(Sums (&)[Count]) const {}
};

/// The angles by which a lane's two rows of queries or keys are rotated. Features i and i + HeadSize / 2 of a
/// head, i < HeadSize / 2, are rotated together as one complex number.
template <int HeadSize>
struct RopeAngles {
  static constexpr int kSixteens = std::max(HeadSize / 16, 1);  ///< groups of 16 columns of a head

  /// {row, row + 8} × every 8 columns of half a head. In heads of 8 half a head has 4 columns. There two
  /// lanes share an angle, and the first one's sine is negated.
  float2 cosine[2][kSixteens], sine[2][kSixteens];

  /// `row`: the warp tile's first token. Cosines and sines are (tokens, HeadSize / 2). Direction −1 rotates
  /// back.
  __device__ static RopeAngles of(const float* cosines, const float* sines, int row, int tokens,
                                  float direction) {
    const LanePlace place = lane_place();
    const float sign = HeadSize == 8 && place.column < 4 ? -direction : direction;
    RopeAngles angles;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = min(row + place.row + 8 * half, tokens - 1);
#pragma unroll
      for (int i = 0; i < kSixteens; ++i) {
        const int angle = HeadSize / 2 * token + (8 * i + place.column) % (HeadSize / 2);
        const float2 sine = *reinterpret_cast<const float2*>(sines + angle);
        angles.cosine[half][i] = *reinterpret_cast<const float2*>(cosines + angle);
        angles.sine[half][i] = {sign * sine.x, sign * sine.y};
      }
    }
    return angles;
  }

  /// Rotates `sums` in place. They must be whole heads.
  template <int Count>
  __device__ void apply(Sums (&sums)[Count]) const {
    constexpr int kEights = HeadSize / 8, kHalf = kEights / 2;
#pragma unroll
    for (int eight = 0; eight < Count; ++eight) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 cosines = cosine[half][eight % kSixteens], sines = sine[half][eight % kSixteens];
        float* const first = sums[eight].value + 2 * half;
        if constexpr (HeadSize == 8) {
          first[0] = fmaf(first[0], cosines.x, __shfl_xor_sync(kAllLanes, first[0], 2) * sines.x);
          first[1] = fmaf(first[1], cosines.y, __shfl_xor_sync(kAllLanes, first[1], 2) * sines.y);
        } else if (eight % kEights < kHalf) {
          float* const second = sums[eight + kHalf].value + 2 * half;
          rotate(first[0], second[0], cosines.x, sines.x);
          rotate(first[1], second[1], cosines.y, sines.y);
        }
      }
    }
  }
  __device__ static void rotate(float& real, float& imaginary, float cosine, float sine) {
    const float before = real;
    real = fmaf(before, cosine, -imaginary * sine);
    imaginary = fmaf(imaginary, cosine, before * sine);
  }
};

}  // namespace adtrain::kernels
