#pragma once

#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/primitives/FeatureOrder.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// The residual stream in registers, in the feature order of FeatureOrder.cuh.
namespace adtrain::kernels::forward_pass {

/// A warp tile of the residual stream: 16 rows × Width features, in feature order, as left operands.
template <int Width>
struct Features {
  LeftFragment step[Width / 16];

  static __device__ Features rounded(const Sums (&values)[Width / 8]) {
    Features features;
#pragma unroll
    for (int i = 0; i < Width / 16; ++i) features.step[i] = as_left(values[2 * i], values[2 * i + 1]);
    return features;
  }

  /// Loads rows from `row` on of the matrix `from` (rows, Width). Rows beyond its end are 0.
  static __device__ Features loaded(const Bf16* from, int row, int rows, unsigned lane) {
    const LanePlace place = lane_place(lane);
    Features features;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = row + place.row + 8 * half;
      const Bf16* at = from + min(own, rows - 1) * Width + 4 * place.column;
#pragma unroll
      for (int block = 0; block < Width / 32; ++block) {
        const uint4 eight = __ldg(reinterpret_cast<const uint4*>(at + 32 * block));
        features.set(block, half, own < rows ? eight : uint4{0, 0, 0, 0});
      }
    }
    return features;
  }
  /// Loads rows from `row` on of a tile.
  static __device__ Features loaded(Tile<Width> from, int row, unsigned lane) {
    const LanePlace place = lane_place(lane);
    Features features;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int block = 0; block < Width / 32; ++block) {
        const Bf16* at = from_row(from, row + 8 * half).at(place.row, 32 * block + 4 * place.column);
        features.set(block, half, *reinterpret_cast<const uint4*>(at));
      }
    }
    return features;
  }

  /// Stores the output rows of a warp tile in the matrix `to` (S · R, Width).
  __device__ void store(Bf16* to, const WarpTile& warp_tile, unsigned lane) const {
    Bf16* at = to + warp_tile.place() * Width + 4 * lane_place(lane).column;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int block = 0; block < Width / 32; ++block) {
        const uint4 eight = {step[2 * block].part[half], step[2 * block].part[half + 2],
                             step[2 * block + 1].part[half], step[2 * block + 1].part[half + 2]};
        if (warp_tile.comes_out(half)) *reinterpret_cast<uint4*>(at + 8 * half * Width + 32 * block) = eight;
      }
    }
  }

  /// The lane's two columns among columns 8 · eight …, in its first row or, half = 1, its second.
  __device__ float2 pair(int eight, int half) const {
    return unpacked(step[eight / 2].part[2 * (eight % 2) + half]);
  }

 private:
  /// Sets the lane's eight of 32 features, which are contiguous in memory.
  __device__ void set(int block, int half, const uint4& eight) {
    step[2 * block].part[half] = eight.x;
    step[2 * block].part[half + 2] = eight.y;
    step[2 * block + 1].part[half] = eight.z;
    step[2 * block + 1].part[half + 2] = eight.w;
  }
};

template <int Width>
__device__ void start_from_bias(Sums (&sums)[Width / 8], const float* bias, unsigned lane) {
#pragma unroll
  for (int eight = 0; eight < Width / 8; ++eight) {
    sums[eight] = sums_from(bias + feature_of_lane(lane, eight));
  }
}

}  // namespace adtrain::kernels::forward_pass
