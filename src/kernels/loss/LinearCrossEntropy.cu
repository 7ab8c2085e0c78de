#include <algorithm>

#include "base/Cuda.h"
#include "kernels/loss/LinearCrossEntropy.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/RowProducts.cuh"
#include "kernels/primitives/TransferInstructions.cuh"

/// A warp works on 16 rows. Their logits are a product on the tensor cores whose 8 columns are the actions.
/// Lane (row, quad) holds actions 2 · quad and 2 · quad + 1 of rows `row` and `row` + 8, so the softmax of a
/// row is computed within a quad.
namespace adtrain::kernels {
namespace {

constexpr int kMostActions = LinearCrossEntropyShape::kMostActions;
static_assert(kMostActions == 8, "one tile of a product");

/// With few rows, few large blocks would leave all instructions to one or two multiprocessors. So the warps
/// that share a sum are spread over the small blocks of a cluster.
constexpr int kLossWarps = 8, kLossThreads = kLossWarps * kWarp, kLossBlocks = 8;
constexpr int64_t kLossRows = kLossBlocks * kLossWarps * kWarpTile;  ///< per cluster

constexpr int kBackwardWarps = 4, kBackwardThreads = kBackwardWarps * kWarp;
constexpr int64_t kMostParts = 1024;  ///< as many warps fill a GPU

/// Eight columns of a row of `width`; zeros where the row does not exist.
__device__ uint4 chunk_at(const Bf16* matrix, int64_t row, int64_t rows, int width, int column) {
  if (row >= rows) return {0, 0, 0, 0};
  return __ldg(reinterpret_cast<const uint4*>(matrix + row * width + column));
}

/// encoded · weightᵀ for the 16 rows from `first` on.
template <class Short>
__device__ Sums products_of(const LinearCrossEntropyShape& shape, const Bf16* encoded, const Bf16* weight,
                            int64_t first) {
  const auto [row, quad] = quad_place();
  Sums sums = no_sums();
#pragma unroll 2
  for (int column = 8 * quad; column < shape.width; column += 32) {
    const uint4 upper = chunk_at(encoded, first + row, shape.rows, shape.width, column);
    const uint4 lower = chunk_at(encoded, first + row + 8, shape.rows, shape.width, column);
    const uint4 of_action = chunk_at(weight, row, shape.actions, shape.width, column);
    multiply_add<Short>(sums, {{upper.x, lower.x, upper.y, lower.y}}, of_action.x, of_action.y);
    multiply_add<Short>(sums, {{upper.z, lower.z, upper.w, lower.w}}, of_action.z, of_action.w);
  }
  return sums;
}

__device__ int quad_min(int value) {
  value = min(value, __shfl_xor_sync(kAllLanes, value, 1));
  return min(value, __shfl_xor_sync(kAllLanes, value, 2));
}

/// The loss of one row. The slopes are those of the lane's two actions.
struct RowLoss {
  float loss;
  bool right;
  float2 slopes;
};

/// `first` and `second`: the logits of the lane's actions, −∞ beyond the last action. All lanes of a quad
/// must call this together.
__device__ RowLoss loss_of_row(float first, float second, int actions, int taken, float label_smoothing) {
  const int action = 2 * quad_place().quad;
  const bool is_first = action < actions, is_second = action + 1 < actions;
  const float most = quad_max(fmaxf(first, second));
  const int best = quad_min(first == most ? action : second == most ? action + 1 : kMostActions);
  first -= most;
  second -= most;
  const float first_power = is_first ? expf(first) : 0.0f, second_power = is_second ? expf(second) : 0.0f;
  const float powers = quad_sum(first_power + second_power);

  const float of_each = __fdividef(label_smoothing, static_cast<float>(actions)),
              of_taken = 1.0f - label_smoothing;
  const float first_target = is_first ? of_each + (action == taken ? of_taken : 0.0f) : 0.0f;
  const float second_target = is_second ? of_each + (action + 1 == taken ? of_taken : 0.0f) : 0.0f;
  const float expected = quad_sum((first_target > 0 ? first_target * first : 0.0f) +
                                  (second_target > 0 ? second_target * second : 0.0f));
  return {logf(powers) - expected,
          best == taken,
          {__fdividef(first_power, powers) - first_target, __fdividef(second_power, powers) - second_target}};
}

/// The sums of a cluster's blocks, which come to the memory of the first one.
class ClusterSums {
 public:
  /// For all threads of the cluster.
  __device__ void set_up(int block) {
    if (block == 0 && threadIdx.x == 0) {
      arrived_.set_up(1);
      arrived_.expect(sizeof of_blocks_);
      arrived_.arrive();
      show_barriers_to_copies();
    }
    meet_in_cluster();
  }
  /// By one thread of each block.
  __device__ void put(int block, float loss, int correct) {
    start_store(&of_blocks_[block], {{loss, static_cast<float>(correct), 0, 0}}, arrived_, /*block=*/0);
  }
  /// By a warp of the first block, where the first lane stores.
  __device__ void add_up(const LinearCrossEntropySums& sums, int64_t place) {
    arrived_.await(0);
    const int lane = threadIdx.x % kWarp;
    const float4 own = lane < kLossBlocks ? of_blocks_[lane] : float4{};
    const float loss = warp_sum(own.x);
    const int correct = __reduce_add_sync(kAllLanes, static_cast<int>(own.y));
    if (lane == 0) {
      sums.losses[place] = loss;
      sums.correct[place] = correct;
    }
  }

 private:
  float4 of_blocks_[kLossBlocks];
  TransferBarrier arrived_;
};

struct LossMemory {
  ClusterSums cluster;
  float loss_of_warp[kLossWarps];
  int correct_of_warp[kLossWarps];
};

template <class Short>
__global__ void __launch_bounds__(kLossThreads)
    linear_cross_entropy_kernel(LinearCrossEntropyShape shape, const Bf16* encoded, HeadWeights weights,
                                const int32_t* taken, float label_smoothing, float* slopes,
                                LinearCrossEntropySums sums) {
  LossMemory& memory = *reinterpret_cast<LossMemory*>(aligned_shared_memory());
  const int block = static_cast<int>(blockIdx.x) % kLossBlocks;
  memory.cluster.set_up(block);
  follow_kernels_ahead();
  const auto [row, quad] = quad_place();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t number = blockIdx.x / kLossBlocks;  // of the cluster
  const int64_t first = number * kLossRows + (warp * kLossBlocks + block) * kWarpTile;

  float loss = 0;
  int correct = 0;
  if (first < shape.rows) {
    Sums products = products_of<Short>(shape, encoded, weights.weight, first);
#pragma unroll 1  // twice the code would take longer to be fetched than to run
    for (int half = 0; half < 2; ++half) {
      const int64_t place = first + row + 8 * half;
      const bool is_row = place < shape.rows;
      const auto logit = [&](int k) {
        const int action = 2 * quad_place().quad + k;
        if (action >= shape.actions) return -INFINITY;
        return products.value[k] + value_of<Short>(weights.bias[action]);
      };
      // All rows fit in a GPU's memory, so that their numbers fit in 32 bits, in which division is fast.
      const unsigned of_all = static_cast<unsigned>(place), queries = static_cast<unsigned>(shape.queries);
      const unsigned sequence = of_all / queries, query = of_all - sequence * queries;
      const int64_t transition = int64_t{sequence + 1} * shape.transitions - shape.queries + query;
      const RowLoss of_row = loss_of_row(logit(0), logit(1), shape.actions,
                                         is_row ? __ldg(taken + transition) : 0, label_smoothing);
      const bool counts = is_row && quad == 0;
      if (counts) loss += of_row.loss;
      correct += __popc(__ballot_sync(kAllLanes, counts && of_row.right));
      if (is_row) *reinterpret_cast<float2*>(slopes + place * kMostActions + 2 * quad) = of_row.slopes;
      products.value[0] = products.value[2];
      products.value[1] = products.value[3];
    }
  }

  loss = warp_sum(loss);
  if (lane == 0) {
    memory.loss_of_warp[warp] = loss;
    memory.correct_of_warp[warp] = correct;
  }
  __syncthreads();
  if (warp != 0) return;
  const float of_block = warp_sum(lane < kLossWarps ? memory.loss_of_warp[lane] : 0.0f);
  const int correct_of_block =
      __reduce_add_sync(kAllLanes, lane < kLossWarps ? memory.correct_of_warp[lane] : 0);
  if (lane == 0) memory.cluster.put(block, of_block, correct_of_block);
  if (block == 0) memory.cluster.add_up(sums, number);
}

/// Each warp writes one part. It takes every `part_count`-th warp tile of 16 rows, in the columns of
/// blockIdx.y.
template <int Columns, class Short>
__global__ void __launch_bounds__(kBackwardThreads)
    linear_cross_entropy_backward_kernel(LinearCrossEntropyShape shape, const float* gradient,
                                         const float* slopes, const Bf16* encoded, const Bf16* weight,
                                         Bf16* d_encoded, float* parts, int part_count) {
  const auto [row, quad] = quad_place();
  const int lane = threadIdx.x % kWarp, first_column = static_cast<int>(blockIdx.y) * Columns;
  const int part = static_cast<int>(blockIdx.x) * kBackwardWarps + threadIdx.x / kWarp;
  follow_kernels_ahead();
  if (part >= part_count) return;
  const float scale = __ldg(gradient);

  uint32_t right[kTiles<Columns>];  // actions 2 · quad and 2 · quad + 1, one column
#pragma unroll
  for (int tile = 0; tile < kTiles<Columns>; ++tile) {
    const int column = first_column + chunk_column(tile, row), action = 2 * quad;
    right[tile] = packed<Short>(
        action < shape.actions ? value_of<Short>(weight[action * shape.width + column]) : 0.0f,
        action + 1 < shape.actions ? value_of<Short>(weight[(action + 1) * shape.width + column]) : 0.0f);
  }

  Sums of_weight[kTiles<Columns>];
  float of_bias = 0;  // of action `row`
#pragma unroll
  for (int tile = 0; tile < kTiles<Columns>; ++tile) of_weight[tile] = no_sums();
  for (int64_t first = int64_t{part} * kWarpTile; first < shape.rows;
       first += int64_t{part_count} * kWarpTile) {
    FourRows<Columns> rows;
    float slope[4];
    constexpr float kNone[4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int64_t place = first + 4 * quad + k;
      const bool is_row = place < shape.rows;
      rows.load(k, is_row ? encoded + place * shape.width + first_column : nullptr);
      slope[k] = is_row ? __ldg(slopes + place * kMostActions + row) : 0.0f;
      of_bias += slope[k];
    }
    add_product<Columns, Short>(of_weight, left_of_rows<Short>(slope, kNone), rows);

    LeftFragment left = {{0, 0, 0, 0}};  // its columns 8 … 15 are unused
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t place = first + row + 8 * half;
      if (place >= shape.rows) continue;
      const float2 both = __ldg(reinterpret_cast<const float2*>(slopes + place * kMostActions + 2 * quad));
      left.part[half] = packed<Short>(both.x, both.y);
    }
    Sums sums[kTiles<Columns>];
#pragma unroll
    for (int tile = 0; tile < kTiles<Columns>; ++tile) {
      sums[tile] = no_sums();
      multiply_add<Short>(sums[tile], left, right[tile], 0);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t place = first + row + 8 * half;
      if (place < shape.rows) {
        store_chunks<Columns, Short>(sums, half, scale, d_encoded + place * shape.width + first_column);
      }
    }
  }

  const HeadGradients places = HeadGradients::of(shape.actions, shape.width);
  float* own = parts + int64_t{part} * places.total;
  if (row < shape.actions) store_sums<Columns>(of_weight, 0, scale, own + row * shape.width + first_column);
  if (blockIdx.y != 0) return;
  of_bias = quad_sum(of_bias) * scale;
  // After the weight, gaps hold zeros. All lanes take part in every shuffle, because the width is a multiple
  // of 32.
  for (int place = shape.actions * shape.width + lane; place < places.total; place += kWarp) {
    const int action = place - places.bias;
    const float of_action = __shfl_sync(kAllLanes, of_bias, 4 * (action & 7));
    own[place] = action >= 0 && action < shape.actions ? of_action : 0.0f;
  }
}

}  // namespace

int linear_cross_entropy_parts(const LinearCrossEntropyShape& shape) {
  return static_cast<int>(gpu::divided_up(shape.rows, kLossRows));
}

void linear_cross_entropy(const LinearCrossEntropyShape& shape, const __nv_bfloat16* encoded,
                          const HeadWeights& weights, const int32_t* taken, float label_smoothing,
                          float* slopes, const LinearCrossEntropySums& sums, cudaStream_t stream) {
  with_type(shape.type, [&](auto type) {
    launch_early_in_clusters("linear_cross_entropy_kernel", linear_cross_entropy_kernel<decltype(type)>,
                             static_cast<unsigned>(kLossBlocks * linear_cross_entropy_parts(shape)),
                             kLossThreads, sizeof(LossMemory), kLossBlocks, stream, shape, encoded, weights,
                             taken, label_smoothing, slopes, sums);
  });
}

int linear_cross_entropy_backward_parts(const LinearCrossEntropyShape& shape) {
  return static_cast<int>(std::min(gpu::divided_up(shape.rows, kWarpTile), kMostParts));
}

void linear_cross_entropy_backward(const LinearCrossEntropyShape& shape, const float* gradient,
                                   const float* slopes, const __nv_bfloat16* encoded,
                                   const HeadWeights& weights, __nv_bfloat16* d_encoded, float* parts,
                                   cudaStream_t stream) {
  const int part_count = linear_cross_entropy_backward_parts(shape);
  const auto launch = [&](auto kernel, int columns) {
    const dim3 grid(static_cast<unsigned>(gpu::divided_up(part_count, kBackwardWarps)),
                    static_cast<unsigned>(shape.width / columns));
    launch_early("linear_cross_entropy_backward_kernel", kernel, grid, kBackwardThreads, 0, stream, shape,
                 gradient, slopes, encoded, weights.weight, d_encoded, parts, part_count);
  };
  with_type(shape.type, [&](auto type) {
    using Short = decltype(type);
    if (shape.width % 64 == 0) {
      launch(linear_cross_entropy_backward_kernel<64, Short>, 64);
    } else {
      launch(linear_cross_entropy_backward_kernel<32, Short>, 32);
    }
  });
}

}  // namespace adtrain::kernels
