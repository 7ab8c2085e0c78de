#pragma once

#include "kernels/block/BlockTensors.h"
#include "kernels/block/last_token/Group.cuh"
#include "kernels/primitives/Tile.cuh"

/// The weight gradients of the last token's attention: for each sequence four products of a column with a
/// row, for queries, keys, values and out_proj. They are summed over sequences, whose vectors lie side by
/// side in shared memory, as a product on the tensor cores sums.
namespace adtrain::kernels::last_token {

/// The factors of the sequences that a thread block works on at once. The names are those of
/// LastTokenBackward.cu's formulas.
template <int Width, int Heads>
struct alignas(16) Factors {
  static constexpr int kProducts = 4, kVectors = kProducts + 2 + 2 * Heads;
  using Vector = Bf16[Width][kGroups];

  Vector vectors[kVectors];
  float kept[kGroups][Heads];  ///< Σ a

  /// The columns: dq, q / √d, do, df.
  __device__ Vector& left(int product) { return vectors[product]; }
  __device__ const Vector& left(int product) const { return vectors[product]; }
  /// The rows: x_last and o of the first and the last product; d and Σ a x of each head of the others.
  __device__ Vector& x_last() { return vectors[kProducts]; }
  __device__ Vector& attention_output() { return vectors[kProducts + 1]; }
  __device__ Vector& d(int head) { return vectors[kProducts + 2 + head]; }
  __device__ Vector& weighted(int head) { return vectors[kProducts + 2 + Heads + head]; }
  __device__ const Vector& right(int product, int head) const {
    return vectors[kProducts + (product == 0   ? 0
                                : product == 1 ? 2 + head
                                : product == 2 ? 2 + Heads + head
                                               : 1)];
  }

  /// For a group without a sequence, by all of its threads.
  __device__ void clear(int group, int thread) {
    for (int i = thread; i < kVectors * Width; i += kGroupThreads) {
      vectors[i / Width][i % Width][group] = __float2bfloat16(0.0f);
    }
    if (thread < Heads) kept[group][thread] = 0;
  }
};

/// What a warp has of the sums over all sequences: 16 rows of one of the four products.
template <int Width, int HeadSize>
class OuterProducts {
 public:
  /// All threads of the block call this together, after a barrier.
  __device__ void add(const Factors<Width, Width / HeadSize>& factors) {
    const LanePlace lane = lane_place();
    const uint32_t upper = pair(factors.left(product_)[first_row_ + lane.row]),
                   lower = pair(factors.left(product_)[first_row_ + lane.row + 8]);
    constexpr int kParts = HeadSize < 16 ? 2 : 1;  // heads in 16 rows
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const auto& right = factors.right(product_, (first_row_ + 8 * part) / HeadSize);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        multiply_add_8(sums_[tile].value, kParts == 2 && part == 1 ? 0 : upper,
                       kParts == 2 && part == 0 ? 0 : lower, pair(right[column(tile, lane.row)]));
      }
    }
    if (threadIdx.x < Factors<Width, Width / HeadSize>::kProducts * Width) add_bias(factors);
  }

  /// Writes the sums, and those for biases.
  __device__ void write(float* part) const {
    constexpr auto kPlaces = AttentionGradients::of(Width);
    const auto rows_of = [&](int product) {
      return product == 3 ? part + kPlaces.out_proj_weight
                          : part + kPlaces.in_proj_weight + product * Width * Width;
    };
    const LanePlace lane = lane_place();
    float* to = rows_of(product_) + (first_row_ + lane.row) * Width;
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      const float(&even)[4] = sums_[tile].value;
      const float(&odd)[4] = sums_[tile + 1].value;
      float* first = to + column(tile, lane.column);
      *reinterpret_cast<float4*>(first) = {even[0], even[1], odd[0], odd[1]};
      *reinterpret_cast<float4*>(first + 8 * Width) = {even[2], even[3], odd[2], odd[3]};
    }
    const int product = threadIdx.x / Width, row = threadIdx.x % Width;
    if (product < 3) part[kPlaces.in_proj_bias + product * Width + row] = bias_sum_;
    if (product == 3) part[kPlaces.out_proj_bias + row] = bias_sum_;
  }

 private:
  static constexpr int kRowTiles = Width / kWarpTile;
  static constexpr int kShares = kGroupWarps / kRowTiles;  ///< warps with the same rows
  static constexpr int kTiles = Width / 8 / kShares;

  /// The lane's pair of sequences. A product sums over eight, of which there are four.
  __device__ static uint32_t pair(const Bf16 (&of_sequences)[kGroups]) {
    const int first = lane_place().column;
    return first < kGroups ? *reinterpret_cast<const uint32_t*>(of_sequences + first) : 0;
  }

  /// The column of element n of a tile: a lane's sums in two tiles are neighbours.
  __device__ int column(int tile, int n) const {
    return first_column_ + 16 * (tile / 2) + 4 * (n / 2) + 2 * (tile % 2) + n % 2;
  }

  /// The gradient of the keys' bias is 0; see LastTokenBackward.cu.
  __device__ void add_bias(const Factors<Width, Width / HeadSize>& factors) {
    const int product = threadIdx.x / Width, row = threadIdx.x % Width;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const float left = __bfloat162float(factors.left(product)[row][group]);
      bias_sum_ += product == 1 ? 0.0f : product == 2 ? left * factors.kept[group][row / HeadSize] : left;
    }
  }

  int product_ = threadIdx.x / kWarp / kGroupWarps;
  int first_row_ = threadIdx.x / kWarp % kRowTiles * kWarpTile;
  int first_column_ = threadIdx.x / kWarp % kGroupWarps / kRowTiles * (Width / kShares);
  Sums sums_[kTiles] = {};
  float bias_sum_ = 0;
};

}  // namespace adtrain::kernels::last_token
