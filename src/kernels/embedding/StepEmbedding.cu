#include <algorithm>

#include "base/Cuda.h"
#include "base/Launch.cuh"
#include "kernels/embedding/StepEmbedding.h"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowVectors.cuh"

/// Forward, a thread has eight columns of a token.
///
/// Backward, a lane has a column and a warp a token's place in several sequences, one after the other. The
/// sum over these sequences is a part of the position's gradient. Each gradient is also added to its row of a
/// table in shared memory, which a warp has for itself: the sums have one order, and nothing is added by
/// atomic operations. At the end the tables of a thread block's warps are added up. A table has a range of a
/// kind's rows; where there are more, further thread blocks read the gradients again for the next range.
namespace adtrain::kernels {
namespace {

enum Kind { kState, kAction, kReward };

constexpr int kForwardThreads = 256;
constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kColumns = kWarp;     ///< of a table
constexpr int kTableRows = 96;      ///< 12 KiB a warp: two thread blocks run on a multiprocessor
constexpr int kThreadBlocks = 264;  ///< as many as run at once on an H100
constexpr int kAhead = 8;           ///< gradients that a lane loads at once
constexpr int kUnitsOfWarp = 4;     ///< so many that warps end at about the same time

/// A range of rows of a kind's table.
struct Range {
  Kind kind;
  int first, rows;
};

/// The ranges of all kinds: those of states, then those of actions, then that of rewards.
struct Ranges {
  int cells, actions;

  static Ranges of(const StepShape& shape) { return {shape.cells(), shape.actions}; }
  __host__ __device__ static int of_rows(int rows) { return (rows + kTableRows - 1) / kTableRows; }
  __host__ __device__ int count() const { return of_rows(cells) + of_rows(actions) + 1; }
  __device__ Range at(int number) const {
    const int of_states = of_rows(cells), of_actions = of_rows(actions);
    if (number < of_states) return part(kState, cells, number);
    if (number < of_states + of_actions) return part(kAction, actions, number - of_states);
    return {kReward, 0, 2};  // the weight, and the bias
  }

 private:
  __device__ static Range part(Kind kind, int rows, int number) {
    const int first = number * kTableRows;
    return {kind, first, min(kTableRows, rows - first)};
  }
};

/// How the backward pass is divided: `blocks` thread blocks for each range and 32 columns, whose warps take
/// units of work. A unit is a step in one of `slices` parts of the sequences.
struct Division {
  int blocks, slices;

  static Division of(const StepShape& shape) {
    const int beside = Ranges::of(shape).count() * (shape.width / kColumns);
    const int blocks = std::max(kThreadBlocks / beside, 1);
    const auto enough = static_cast<int>(gpu::divided_up(kUnitsOfWarp * kWarps * blocks, shape.states));
    return {blocks, std::clamp(enough, 1, static_cast<int>(gpu::divided_up(shape.sequences, kAhead)))};
  }
};

__device__ int cell_of(const StepShape& shape, const StepArrays& steps, int64_t state) {
  return __ldg(steps.states + 2 * state) * shape.grid_size + __ldg(steps.states + 2 * state + 1);
}

/// Eight columns, from `column` on.
template <class Short>
__device__ Floats columns_of(const Bf16* row, int column) {
  return unpacked<Short>(__ldg(reinterpret_cast<const Vector*>(row + column)));
}

template <class Short>
__global__ void __launch_bounds__(kForwardThreads)
    embed_steps_kernel(StepShape shape, StepArrays steps, StepWeights weights, Bf16* x) {
  const int64_t place = int64_t{blockIdx.x} * kForwardThreads + threadIdx.x;
  const int vectors = shape.width / kVectorWidth, tokens = shape.tokens();
  const int64_t token_of_all = place / vectors;
  if (token_of_all >= int64_t{shape.sequences} * tokens) return;
  const int column = kVectorWidth * static_cast<int>(place % vectors);
  const int64_t sequence = token_of_all / tokens;
  const int token = static_cast<int>(token_of_all % tokens), step = token / StepShape::kKinds;
  const int64_t width = shape.width, of_step = sequence * steps.steps + step;
  Floats sum = columns_of<Short>(weights.positions + token * width, column);
  const auto add = [&](const Bf16* row, float factor) {
    const Floats values = columns_of<Short>(row, column);
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) sum.at[i] = fmaf(factor, values.at[i], sum.at[i]);
  };
  switch (token % StepShape::kKinds) {
    case kState:
      add(weights.states + cell_of(shape, steps, sequence * shape.states + step) * width, 1.0f);
      break;
    case kAction:
      add(weights.actions + __ldg(steps.actions + of_step) * width, 1.0f);
      break;
    default:
      add(weights.reward_weight, __ldg(steps.rewards + of_step));
      add(weights.reward_bias, 1.0f);
  }
  *reinterpret_cast<Vector*>(x + token_of_all * width + column) = packed<Short>(sum);
}

/// The grid: thread blocks that share a range, 32 columns, ranges.
template <class Short>
__global__ void __launch_bounds__(kThreads, 2)
    embed_steps_backward_kernel(StepShape shape, StepArrays steps, const Bf16* dx, StepGradientParts parts,
                                Ranges ranges, int slices) {
  const Range range = ranges.at(blockIdx.z);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, tokens = shape.tokens();
  const int64_t width = shape.width, column = int64_t{kColumns} * blockIdx.y + lane;
  auto* const tables = reinterpret_cast<float*>(dynamic_shared_memory());
  float* const table = tables + warp * kTableRows * kColumns + lane;
  for (int row = 0; row < range.rows; ++row) table[row * kColumns] = 0.0f;

  const int units = (range.kind == kState ? shape.states : shape.states - 1) * slices;
  const int apart = static_cast<int>(gridDim.x) * kWarps;
  float of_weight = 0.0f, of_bias = 0.0f;
#pragma unroll 1
  for (int unit = static_cast<int>(blockIdx.x) * kWarps + warp; unit < units; unit += apart) {
    const int step = unit / slices, slice = unit % slices, token = StepShape::kKinds * step + range.kind;
    const auto bound = [&](int of) { return static_cast<int>(int64_t{shape.sequences} * of / slices); };
    const int end = bound(slice + 1);
    float sum = 0.0f;
#pragma unroll 1
    for (int first = bound(slice); first < end; first += kAhead) {
      float gradient[kAhead], reward[kAhead];
      int row[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int64_t sequence = min(first + k, end - 1), of_step = sequence * steps.steps + step;
        const Bf16 bits = __ldg(dx + (sequence * tokens + token) * width + column);
        gradient[k] = first + k < end ? value_of<Short>(bits) : 0.0f;
        row[k] = 0, reward[k] = 0.0f;
        if (range.kind == kState) row[k] = cell_of(shape, steps, sequence * shape.states + step);
        if (range.kind == kAction) row[k] = __ldg(steps.actions + of_step);
        if (range.kind == kReward) reward[k] = __ldg(steps.rewards + of_step);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        sum += gradient[k];
        if (range.kind == kReward) {
          of_weight = fmaf(reward[k], gradient[k], of_weight);
        } else if (const int of_range = row[k] - range.first; of_range >= 0 && of_range < range.rows) {
          table[of_range * kColumns] += gradient[k];
        }
      }
    }
    of_bias += sum;
    if (range.first == 0) parts.of_positions[(int64_t{slice} * tokens + token) * width + column] = sum;
  }
  if (range.kind == kReward) {
    table[0] = of_weight;
    table[kColumns] = of_bias;
  }
  __syncthreads();

  float* const to = parts.of_tables + blockIdx.x * parts.table_size + column;
  const auto row_at = [&](int row) {
    if (range.kind == kState) return parts.states + (range.first + row) * width;
    if (range.kind == kAction) return parts.actions + (range.first + row) * width;
    return row == 0 ? parts.reward_weight : parts.reward_bias;
  };
#pragma unroll 1
  for (int row = warp; row < range.rows; row += kWarps) {
    float sum = 0.0f;
#pragma unroll
    for (int of_warp = 0; of_warp < kWarps; ++of_warp)
      sum += tables[(of_warp * kTableRows + row) * kColumns + lane];
    to[row_at(row)] = sum;
  }
}

}  // namespace

int StepGradientParts::position_parts(const StepShape& shape) {
  return Division::of(shape).slices;
}
int StepGradientParts::table_parts(const StepShape& shape) {
  return Division::of(shape).blocks;
}

void embed_steps(const StepShape& shape, const StepArrays& steps, const StepWeights& weights,
                 __nv_bfloat16* x, cudaStream_t stream) {
  const int64_t vectors = int64_t{shape.sequences} * shape.tokens() * (shape.width / kVectorWidth);
  with_type(shape.type, [&](auto type) {
    gpu::launch("embed_steps_kernel", embed_steps_kernel<decltype(type)>,
                static_cast<unsigned>(gpu::divided_up(vectors, kForwardThreads)), kForwardThreads, 0, stream,
                shape, steps, weights, x);
  });
}

void embed_steps_backward(const StepShape& shape, const StepArrays& steps, const __nv_bfloat16* dx,
                          const StepGradientParts& parts, cudaStream_t stream) {
  const Ranges ranges = Ranges::of(shape);
  const Division by = Division::of(shape);
  const dim3 grid(static_cast<unsigned>(by.blocks), static_cast<unsigned>(shape.width / kColumns),
                  static_cast<unsigned>(ranges.count()));
  constexpr int kBytes = kWarps * kTableRows * kColumns * static_cast<int>(sizeof(float));
  with_type(shape.type, [&](auto type) {
    gpu::launch("embed_steps_backward_kernel", embed_steps_backward_kernel<decltype(type)>, grid, kThreads,
                kBytes, stream, shape, steps, dx, parts, ranges, by.slices);
  });
}

}  // namespace adtrain::kernels
