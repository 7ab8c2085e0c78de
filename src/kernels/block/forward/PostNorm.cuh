#pragma once

#include <cstdint>

#include "kernels/attention/resident/forward/DropoutWords.cuh"
#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/Sequence.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/block/BlockTensors.h"
#include "kernels/block/forward/Attention.cuh"
#include "kernels/block/forward/Mlp.cuh"
#include "kernels/block/forward/Norm.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// What is specific to a post-norm block in the forward pass: everything after attention.
namespace adtrain::kernels::forward_pass {

/// The block's own shared memory, besides that of attention.
template <int Width>
struct MlpMemory {
  Tile<Width> linear1;
  Tile<kHiddenChunk> linear2;  ///< the chunks' columns, one below the other
  float *linear1_bias, *linear2_bias;
  Bf16 *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias;

  static constexpr int kMatrices = Tile<Width>::bytes(8 * Width);
  static constexpr int kVectors = Width * static_cast<int>(5 * sizeof(float) + 4 * sizeof(Bf16));

  __device__ MlpMemory(char* matrices_start, char* vectors_start) {
    FreeMemory matrices = {matrices_start}, vectors = {vectors_start};
    linear1 = {matrices.take<Bf16>(4 * Width * Width)};
    linear2 = {matrices.take<Bf16>(4 * Width * Width)};
    linear1_bias = vectors.take<float>(4 * Width);
    linear2_bias = vectors.take<float>(Width);
    norm1_weight = vectors.take<Bf16>(Width);
    norm1_bias = vectors.take<Bf16>(Width);
    norm2_weight = vectors.take<Bf16>(Width);
    norm2_bias = vectors.take<Bf16>(Width);
  }
};

/// No rotation of queries and keys.
struct NoRotary {
  template <class Job>
  __device__ NoRotary(const Job&, int, unsigned) {}
  template <int Eights>
  __device__ void rotate(Sums (&)[Eights]) const {}
};

/// Padded: sequences may begin with padding. These kernels are slower on sequences without padding.
template <bool Padded>
struct PostNorm : ProjectingBlock {
  /// The arguments of a launch.
  struct Job {
    BlockShape shape;
    BlockWeights weights;
    DropoutMasks keep;
    BlockActivations activations;
    Bf16* y;

    __host__ __device__ const uint32_t* attention_keep() const { return keep.attention; }
    __device__ float attention_scale() const { return keep.attention_scale; }
    __device__ const Bf16* input() const { return activations.x; }  ///< of attention
    __device__ Bf16* attention_output() const { return activations.attention_output; }
    __device__ float* lse() const { return activations.lse; }
  };
  template <int Width>
  using OwnMemory = MlpMemory<Width>;
  template <int HeadSize>
  using Rotary = NoRotary;
  /// Whether the residual stream is not the same array as attention's input.
  static constexpr bool kResidualApart = false;
  static constexpr bool kPadded = Padded;

  /// All threads of the block call this together, for both groups.
  template <int HeadSize, int Width>
  static __device__ void copy_weights(const Memory<PostNorm, Width>& memory, const Job& job) {
    const BlockWeights& from = job.weights;
    copy_in_feature_order_of_rows(memory.out_proj, from.out_proj_weight, Width);
    for (int unit = 0; unit < 4 * Width; unit += kHiddenChunk) {
      copy_in_feature_order_of_rows(columns_of_chunk<Width>(memory.linear2, unit), from.linear2_weight + unit,
                                    Width, 4 * Width);
    }
    copy_in_feature_order_of_columns(memory.in_proj, from.in_proj_weight, 3 * Width);
    copy_in_feature_order_of_columns(memory.linear1, from.linear1_weight, 4 * Width);
    copy_vector(memory.in_proj_bias, from.in_proj_bias, 3 * Width);
    copy_vector(memory.out_proj_bias, from.out_proj_bias, Width);
    copy_vector(memory.linear1_bias, from.linear1_bias, 4 * Width);
    copy_vector(memory.linear2_bias, from.linear2_bias, Width);
    copy_vector(memory.norm1_weight, from.norm1_weight, Width);
    copy_vector(memory.norm1_bias, from.norm1_bias, Width);
    copy_vector(memory.norm2_weight, from.norm2_weight, Width);
    copy_vector(memory.norm2_bias, from.norm2_bias, Width);
  }

  /// Prefetches the dropout words that the warp will read for a warp tile; the lanes share them. Called only
  /// with dropout.
  template <int HeadSize, bool Dropout, int Width>
  static __device__ void prefetch_for(const Sequence<PostNorm, Width>& sequence, const WarpTile& warp_tile) {
    const BlockShape& shape = sequence.job.shape;
    const DropoutMasks& keep = sequence.job.keep;
    const int lane = lane_anew();
    prefetch_attention_dropout_mask<Width, HeadSize>(shape, keep.attention, warp_tile, lane);
    const int64_t row = warp_tile.sequence * shape.rows +
                        min(max(warp_tile.first_row(), 0) + lane % kWarpTile, shape.rows - 1);
    if (lane < kWarpTile) prefetch(keep.inner + row * (Width / 8));
    prefetch((lane < kWarpTile ? keep.projection : keep.output) + row * (Width / 32));
  }

  /// The residual stream, which is attention's input x.
  template <bool Dropout, int Width>
  static __device__ Residual<Width> residual_of(const Features<Width>& x,
                                                const Sequence<PostNorm, Width>& sequence,
                                                const WarpTile& warp_tile) {
    Residual<Width> residual = {x, {}};
    if (Dropout)
      residual.words = RowWords<Width / 32>::loaded(sequence.job.keep.projection, Width / 32, warp_tile);
    return residual;
  }

  /// From the attention output to the block's output. All warps that multiply together call this together.
  /// load_next: starts to load what the warp tile after this one needs first, where registers are free.
  template <bool Dropout, int Width, class Next>
  static __device__ __forceinline__ void finish(LeftFragment (&attention_output)[Width / 16],
                                                Residual<Width>& residual,
                                                const Sequence<PostNorm, Width>& sequence,
                                                const WarpTile& warp_tile, const Next& load_next) {
    const Job& job = sequence.job;
    const DropoutMasks& keep = job.keep;
    const Memory<PostNorm, Width>& memory = sequence.memory;
    const BlockActivations& kept = job.activations;
    Sums sums[Width / 8];
    project_output(sums, attention_output, memory);
    unsigned lane = lane_anew();
    add_residual<Dropout>(sums, residual, keep.hidden_scale, lane);
    const Norm norm1 = {memory.norm1_weight, memory.norm1_bias, kept.normed1, kept.inverse1};
    residual.x = layer_norm<Width>(sums, norm1, warp_tile, lane);

    if (Dropout) residual.words = RowWords<Width / 32>::loaded(keep.output, Width / 32, warp_tile);
    mlp<Dropout>(sums, residual.x, sequence, warp_tile);
    load_next();
    lane = lane_anew();
    add_residual<Dropout>(sums, residual, keep.hidden_scale, lane);
    const Norm norm2 = {memory.norm2_weight, memory.norm2_bias, kept.normed2, kept.inverse2};
    layer_norm<Width>(sums, norm2, warp_tile, lane).store(job.y, warp_tile, lane);
  }

  /// Writes the outputs of padding. The backward pass multiplies them by gradients of 0, so they must be
  /// finite.
  template <int Width>
  static __device__ void clear(const Sequence<PostNorm, Width>& sequence, const WarpTile& warp_tile) {
    const Job& job = sequence.job;
    const BlockActivations& kept = job.activations;
    const unsigned lane = lane_anew();
    const Features<Width> zeros = {};
    for (Bf16* rows : {kept.normed1, kept.normed2, job.y}) zeros.store(rows, warp_tile, lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (warp_tile.comes_out(half) && lane % 4 == 0) {
        kept.inverse1[warp_tile.place() + 8 * half] = kept.inverse2[warp_tile.place() + 8 * half] = 0.0f;
      }
    }
  }
};
static_assert(Memory<PostNorm<false>, 64>::bytes() <= 227 * 1024, "a thread block's shared memory");

}  // namespace adtrain::kernels::forward_pass
