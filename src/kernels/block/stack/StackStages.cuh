#pragma once

#include <cstdint>

#include "kernels/block/stack/StackMemory.cuh"

namespace adtrain::kernels {

/// The weights that a thread block multiplies by, in the order in which it does: tiles of 16 features and
/// 2048 columns, each a stage. A block of the network has 12: three of kQkv, one of kOut, four of kUp, and of
/// kDown four times 2048 columns of one tile. Eight, or of 8 bits five, are in shared memory or on their way
/// there.
template <WeightForm kForm>
class StackStages {
  using Memory = StackMemory<kForm>;

 public:
  static constexpr int kOfBlock = 12;

  /// How many stages a product has, how many tiles of features, and its first stage.
  __device__ static int of(int matrix) { return matrix == kQkv ? 3 : matrix == kOut ? 1 : 4; }
  __device__ static int tiles_of(int matrix) { return matrix == kDown ? 1 : of(matrix); }
  __device__ static int first_of(int block, int matrix) {
    return kOfBlock * block + (matrix == kQkv ? 0 : matrix == kOut ? 3 : 4 * matrix - 4);
  }
  /// Whether there is a norm before a product.
  __device__ static bool is_normed(int matrix) { return matrix == kQkv || matrix == kUp; }
  /// γ of the norm before a product.
  __device__ static uint32_t norm_weights_of(int matrix) {
    return Memory::kNormWeights + (matrix == kQkv ? 0 : 2 * StackShape::kWidth);
  }

  __device__ explicit StackStages(const DecodingStack& job) : job_(job) {}

  /// By one thread; a barrier must follow.
  __device__ static void set_up() {
    for (int stage = 0; stage < Memory::kStages; ++stage) {
      Memory::barrier_of(stage).set_up(1);
      if constexpr (kOneByOne) Memory::read_of(stage).set_up(Memory::kWarps);
    }
    show_barriers_to_copies();
  }
  /// The first stages. By all threads.
  __device__ void fill() {
    for (int started = 0; started < Memory::kStages; started += 4)
      start_next(min(4, Memory::kStages - started));
  }
  /// The warp has read a stage of the product that begins with stage `first`. By all threads. One warp waits
  /// until all have read the stage before, as they nearly have, and starts to copy to its place.
  __device__ void have_read(int stage, int first) const {
    if constexpr (kOneByOne) {
      __syncwarp();
      if (threadIdx.x % kWarp == 0) Memory::read_of(stage).arrive();
      if (stage > first) replace(stage - 1);
    }
  }
  /// Starts the copies to the places that a product has left. By all threads, once all have read its `count`
  /// stages.
  __device__ void end_product(int first, int count) {
    if constexpr (kOneByOne) {
      replace(first + count - 1);
    } else {
      start_next(count);
    }
  }

 private:
  /// Whether a place is filled again as soon as it has been read. Where there are eight, that they are after
  /// each product is early enough, and there are no registers for more.
  static constexpr bool kOneByOne = !Memory::kTabled;

  /// `count`: 4 at most, each by one of the last warps.
  __device__ void start_next(int count) {
    const int number = static_cast<int>(threadIdx.x) / kWarp - (Memory::kWarps - 4);
    const int stage = started_ + number;
    if (number >= 0 && number < count && threadIdx.x % kWarp == 0 && stage < kOfBlock * job_.count)
      start(stage);
    started_ += count;
  }
  /// Starts the stage that comes to the place of `stage`, by one of the last warps, once all have read it.
  __device__ void replace(int stage) const {
    constexpr unsigned kOthers = Memory::kWarps / 2;
    const int next = stage + Memory::kStages;
    if (threadIdx.x != kWarp * (kOthers + static_cast<unsigned>(stage) % kOthers) ||
        next >= kOfBlock * job_.count)
      return;
    Memory::read_of(stage).await(stage / Memory::kStages);
    start(next);
  }
  /// By one thread.
  __device__ void start(int stage) const {
    constexpr int kScaleBytes = StackShape::kWidth / StackShape::kScaledAlike * 4;  // of a row
    const int block = stage / kOfBlock, place = stage - kOfBlock * block;
    const int matrix = place < 3 ? kQkv : place == 3 ? kOut : place < 8 ? kUp : kDown;
    const int number = place - first_of(0, matrix), tiles = tiles_of(matrix);
    const int tile = tiles * static_cast<int>(blockIdx.x) + (matrix == kDown ? 0 : number);
    const int widths = matrix == kDown ? number : 0, row = Memory::kTileFeatures * tile;
    const StackedBlock& weights = job_.blocks[block];
    TransferBarrier& barrier = Memory::barrier_of(stage);
    barrier.expect(Memory::kCodeBytes + Memory::kScaleBytes);
    start_chunks_copy(&Memory::template at<char>(Memory::codes_of(stage)), weights.codes[matrix], row,
                      StackShape::code_chunks(kForm) * widths, barrier);
    if constexpr (Memory::kTabled)
      start_copy(&Memory::template at<char>(Memory::scales_of(stage)), weights.scales[matrix], row,
                 kScaleBytes * widths, barrier);
    if (number == 0) start_ends(block, matrix, barrier);
    barrier.arrive();
  }
  /// What ends a product, and γ.
  __device__ static void start_ends(int block, int matrix, TransferBarrier& barrier) {
    const StackedBlock::Operands& operands = Memory::operands_of(block);
    const int features = Memory::kTileFeatures * tiles_of(matrix);
    const int first = features * static_cast<int>(blockIdx.x);
    char* const ends = &Memory::template at<char>(Memory::ends_of(matrix));
    const int of_bias = 2 * features, of_norm = 4 * features;
    barrier.expect(of_bias);
    start_copy(ends, static_cast<const char*>(operands.bias[matrix]) + 2 * first, of_bias, barrier);
    const bool normed = is_normed(matrix);
    if constexpr (!Memory::kTabled) {
      const int of_scales = 4 * features;
      barrier.expect(of_scales);
      start_copy(ends + of_bias + (normed ? 2 * of_norm : 0), Memory::row_scales_of(block, matrix) + first,
                 of_scales, barrier);
    }
    if (!normed) return;
    const StackedBlock::Norm& norm = operands.norms[matrix == kQkv ? 0 : 1];
    const float* const products = norm.products + first;
    barrier.expect(2 * of_norm + 2 * StackShape::kWidth);
    start_copy(ends + of_bias, products, of_norm, barrier);
    start_copy(ends + of_bias + of_norm, products + features * StackShape::kThreadBlocks, of_norm, barrier);
    start_copy(&Memory::template at<char>(norm_weights_of(matrix)), norm.weight, 2 * StackShape::kWidth,
               barrier);
  }

  const DecodingStack& job_;
  int started_ = 0;  ///< by start_next()
};

}  // namespace adtrain::kernels
