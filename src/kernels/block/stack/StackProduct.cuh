#pragma once

#include <cstdint>

#include "kernels/block/stack/StackExchange.cuh"
#include "kernels/block/stack/StackWeights.cuh"
#include "kernels/mlp/GeluValues.cuh"

namespace adtrain::kernels {

/// The four products of a block, as one thread of a thread block takes part in them. A thread block has the
/// same features of all blocks, and its warps share the columns: each has 128 of 2048. Before the input has
/// come a warp makes the operands of two stages. The products' sums meet in shared memory; warp r ends row r.
///
/// A norm is done behind its product, as in InputNorm, but its weight multiplies the input and not the
/// weights, so that the operands of later stages take fewer instructions.
template <class Short, WeightForm kForm>
class StackProduct {
  using Memory = StackMemory<kForm>;
  using Weights = StackWeights<Short, kForm>;
  using Stages = StackStages<kForm>;
  using Operands = typename Weights::Operands;
  static constexpr int kWidth = StackShape::kWidth, kAhead = 2, kMostStages = 4;
  static constexpr int kVectors = 4;  ///< that a lane has of a row's input for a stage

 public:
  __device__ StackProduct(const DecodingStack& job, Stages& stages) : job_(job), stages_(stages) {
    find_place();
    if (ends(kOut)) sum_ = __ldg(static_cast<const uint32_t*>(job.input) + word_of_result(kOut));
  }

  /// Product `matrix` of a block.
  __device__ void multiply(int block, int matrix) {
    const BlockExchange exchange(job_, block);
    const int count = Stages::of(matrix), first = Stages::first_of(block, matrix);
    const bool normed = Stages::is_normed(matrix);
    __syncthreads();  // all have read the sums of the product before
    find_place();
    const Weights weights(warp_, lane_);
    const Vector* from = input_of_lane(matrix, exchange.input_of(matrix));
    asm volatile("" : "+l"(from));
    Operands operands[kAhead][Weights::kRuns];
    const auto make = [&](int stage, Operands(&made)[Weights::kRuns]) {
      weights.make(stage, made);
      stages_.have_read(stage, first);
    };
    make(first, operands[0]);
    if (count > 1) make(first + 1, operands[1]);
    Vector x[kVectors];
    if (matrix == kOut) await_first(from);  // attention is on its way, of some thread blocks
    do {
      look(from, x);
    } while ((matrix != kQkv || exchange.has_input()) && !all_have_come(x));
    if (normed) norm(matrix, x);
    Sums sums = no_sums();
#pragma unroll
    for (int stage = 0; stage < kMostStages; ++stage) {
      if (stage >= count) break;
      if (stage > 0 && matrix == kDown)
        while (!all_have_come(x)) look(from, x);
      add(operands[stage % kAhead], x, sums);
      if (stage + 1 < kMostStages && matrix == kDown) look(from += kWidth / kVectorWidth, x);
      if (stage + kAhead < kMostStages && stage + kAhead < count)
        make(first + stage + kAhead, operands[stage % kAhead]);
      if (matrix != kDown || stage + 1 == kMostStages) {
        store(sums, matrix == kDown ? 0 : stage);
        sums = no_sums();
      }
    }
    uint32_t* result = exchange.output_of(matrix) + word_of_result(matrix);
    asm volatile("" : "+l"(result));  // computed before the barrier
    __syncthreads();
    stages_.end_product(first, count);
    if (ends(matrix)) end(matrix, normed, result);
  }

 private:
  /// Anew for each product, so that what follows from it takes no registers between products.
  __device__ void find_place() {
    const unsigned thread = made_here(threadIdx.x);
    warp_ = thread / kWarp;
    lane_ = thread % kWarp;
  }
  /// Whether the thread ends two features of a row.
  __device__ bool ends(int matrix) const {
    return static_cast<int>(warp_) < job_.rows &&
           static_cast<int>(lane_) < Memory::kTileFeatures / 2 * Stages::tiles_of(matrix);
  }
  /// Where they are in the product's result.
  __device__ unsigned word_of_result(int matrix) const {
    const unsigned words = Memory::kTileFeatures / 2 * Stages::tiles_of(matrix);
    return words * (StackShape::kThreadBlocks * warp_ + blockIdx.x) + lane_;
  }
  /// Of the first stage.
  __device__ const Vector* input_of_lane(int matrix, const void* input) const {
    const unsigned row = min(lane_ / 4, static_cast<unsigned>(job_.rows) - 1),
                   width = matrix == kDown ? StackShape::kInner : kWidth;
    return static_cast<const Vector*>(input) +
           (width * row + Weights::kOfWarp * warp_ + 16 * (lane_ % 4)) / kVectorWidth;
  }
  __device__ static void look(const Vector* from, Vector (&x)[kVectors]) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      x[i] = look_at(from + Weights::kRunColumns / kVectorWidth * (i / 2) + i % 2);
  }
  __device__ static bool all_have_come(const Vector (&x)[kVectors]) {
    return has_come(x[0]) && has_come(x[1]) && has_come(x[2]) && has_come(x[3]);
  }

  /// Finds the sums of the rows' columns and of their squares, as InputNorm::count(), and multiplies by γ.
  __device__ void norm(int matrix, Vector (&x)[kVectors]) const {
    const uint32_t ones = packed<Short>(1.0f, 1.0f);
    Sums found[2] = {no_sums(), no_sums()};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int run = 0; run < Weights::kRuns; ++run) {
        const Vector& v = x[2 * run + i];
        multiply_add<Short>(found[run], {{v.x, ones, v.y, ones}}, v.x, v.y);
      }
#pragma unroll
      for (int run = 0; run < Weights::kRuns; ++run) {
        const Vector& v = x[2 * run + i];
        multiply_add<Short>(found[run], {{v.z, ones, v.w, ones}}, v.z, v.w);
      }
    }
    const unsigned row = lane_ / 4;
    if (row / 2 == lane_ % 4) {  // the lane has a part of the diagonal
      const bool odd = row % 2 == 1;
      const float squares =
          odd ? found[0].value[1] + found[1].value[1] : found[0].value[0] + found[1].value[0];
      const float sum = odd ? found[0].value[3] + found[1].value[3] : found[0].value[2] + found[1].value[2];
      Memory::template at<float2>(place_of_found(warp_, row)) = make_float2(sum, squares);
    }
    const uint32_t own = Stages::norm_weights_of(matrix) + 2 * (Weights::kOfWarp * warp_ + 16 * (lane_ % 4));
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const auto& weight =
          Memory::template at<Vector>(own + 2 * Weights::kRunColumns * (i / 2) + 16 * (i % 2));
      x[i] = {multiplied<Short>(x[i].x, weight.x), multiplied<Short>(x[i].y, weight.y),
              multiplied<Short>(x[i].z, weight.z), multiplied<Short>(x[i].w, weight.w)};
    }
  }
  __device__ static uint32_t place_of_found(unsigned warp, unsigned row) {
    return Memory::kFound + 8 * (Memory::kRows * warp + row);
  }

  /// Adds a stage's products. Those of both runs take turns, so that neither waits for the one before.
  __device__ static void add(const Operands (&of_runs)[Weights::kRuns], const Vector (&x)[kVectors],
                             Sums& sums) {
    Sums unscaled[Weights::kRuns] = {no_sums(), no_sums()};
#pragma unroll
    for (int product = 0; product < Weights::kProducts; ++product) {
#pragma unroll
      for (int run = 0; run < Weights::kRuns; ++run) {
        const Vector& v = x[2 * run + product / 2];
        multiply_add<Short>(unscaled[run], of_runs[run].left[product], product % 2 == 0 ? v.x : v.z,
                            product % 2 == 0 ? v.y : v.w);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& sum = sums.value[i];
      if constexpr (Memory::kTabled) {
        sum = fmaf(unscaled[1].value[i], of_runs[1].scale[i / 2],
                   fmaf(unscaled[0].value[i], of_runs[0].scale[i / 2], sum));
      } else {
        sum += unscaled[0].value[i] + unscaled[1].value[i];
      }
    }
  }
  /// Stores a warp's sums of a tile of features. Rows are moved by 8 banks from pair to pair.
  __device__ void store(const Sums& sums, int tile) const {
    const unsigned quad = lane_ % 4,
                   feature = Weights::feature_of(lane_ / 4) + 16 * (static_cast<unsigned>(tile) % 2);
    const uint32_t row = Memory::part_of(warp_, 2 * quad, tile / 2), next_row = 2 * Memory::kSumsRow;
    const uint32_t low = row + 4 * ((feature + 8 * quad) % 32),
                   high = row + 4 * ((feature + 8 + 8 * quad) % 32);
    Memory::template at<float>(low) = sums.value[0];
    Memory::template at<float>(low + next_row) = sums.value[1];
    Memory::template at<float>(high) = sums.value[2];
    Memory::template at<float>(high + next_row) = sums.value[3];
  }

  /// Of float2, in a fixed order.
  template <int Count>
  __device__ static float2 added_up(const float2* parts) {
    if constexpr (Count == 1) {
      return parts[0];
    } else {
      const float2 a = added_up<Count / 2>(parts), b = added_up<Count / 2>(parts + Count / 2);
      return {a.x + b.x, a.y + b.y};
    }
  }
  /// Of all warps: `stride` bytes lie between their parts.
  __device__ static float2 sum_over_warps(uint32_t first, uint32_t stride) {
    float2 parts[Memory::kWarps];
#pragma unroll
    for (int warp = 0; warp < Memory::kWarps; ++warp)
      parts[warp] = Memory::template at<float2>(first + stride * static_cast<uint32_t>(warp));
    return added_up<Memory::kWarps>(parts);
  }
  /// Ends the thread's two features of row warp_, and gives them to all thread blocks.
  __device__ void end(int matrix, bool normed, uint32_t* result) {
    const int features = Memory::kTileFeatures * Stages::tiles_of(matrix);
    const uint32_t ends = Memory::ends_of(matrix) + 4 * lane_;
    float2 y =
        sum_over_warps(Memory::part_of(0, warp_, lane_ / 16) + 4 * ((2 * lane_ + 8 * (warp_ / 2)) % 32),
                       Memory::kPartOfWarp);
    const uint32_t known = ends + 2 * features + 4 * lane_;
    if constexpr (!Memory::kTabled) {
      constexpr float kPerCode = 1.0f / 127;
      const auto& greatest = Memory::template at<float2>(known + (normed ? 8 * features : 0));
      y = {y.x * greatest.x * kPerCode, y.y * greatest.y * kPerCode};
    }
    if (normed) {
      const auto &of_mean = Memory::template at<float2>(known),
                 &of_bias = Memory::template at<float2>(known + 4 * features);
      const float2 found = sum_over_warps(place_of_found(0, warp_), 8 * Memory::kRows);
      constexpr float kPerElement = 1.0f / kWidth;
      const float mean = job_.layer_norm ? found.x * kPerElement : 0.0f;
      const float inverse = rsqrtf(fmaxf(fmaf(-mean, mean, found.y * kPerElement), 0.0f) + job_.epsilon);
      y = {fmaf(inverse, fmaf(-mean, of_mean.x, y.x), of_bias.x),
           fmaf(inverse, fmaf(-mean, of_mean.y, y.y), of_bias.y)};
    }
    const float2 bias = unpacked<Short>(Memory::template at<uint32_t>(ends));
    y = {y.x + bias.x, y.y + bias.y};
    if (matrix == kUp) y = {y.x * GeluForm(y.x).phi(0.5f), y.y * GeluForm(y.y).phi(0.5f)};
    if (!normed) {
      const float2 sum = unpacked<Short>(sum_);
      y = {y.x + sum.x, y.y + sum.y};
    }
    const uint32_t pair = packed<Short>(y.x, y.y);
    if (!normed) sum_ = pair;
    give(result, pair);
  }

  const DecodingStack& job_;
  Stages& stages_;
  unsigned warp_, lane_;
  uint32_t sum_ = 0;  ///< what the thread has ended last of the residual connection
};

}  // namespace adtrain::kernels
