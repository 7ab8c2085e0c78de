#include <algorithm>
#include <cfloat>

#include "base/Launch.cuh"
#include "kernels/block/forward/BlockForward.h"
#include "kernels/block/forward/Mlp.cuh"
#include "kernels/block/forward/Norm.cuh"
#include "kernels/block/forward/PostNorm.cuh"
#include "kernels/block/last_token/ForwardMemory.cuh"
#include "kernels/block/last_token/Group.cuh"
#include "kernels/block/last_token/LastTokenBlock.cuh"
#include "kernels/block/last_token/SplitVector.cuh"
#include "kernels/block/last_token/VectorMlp.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// The forward pass of a block that outputs only the last token's row; LastTokenBlock.cuh has its
/// mathematics. Thread blocks are persistent, one per multiprocessor. Each of a thread block's groups takes a
/// sequence as far as x1, and then all threads take the groups' rows through the MLP together.
///
/// All products are on the tensor cores. u of a head is split into two columns of a matrix with eight columns
/// for four heads, so that a lane has both parts of its tokens' scores of its head; so are the attention
/// weights, which then are the right operand of the sums over tokens. Warps have maxima and sums of their
/// own, which meet when all tokens have been read.
namespace adtrain::kernels {
namespace {

using namespace last_token;

using Job = forward_pass::PostNorm<false>::Job;

template <int Width, int HeadSize, bool Dropout>
class LastToken : Group<Width, HeadSize> {
 public:
  __device__ LastToken(const Job& job, ForwardMemory<Width, HeadSize>& memory)
      : job_(job), memory_(memory), vectors_(memory.vectors), own_(memory.sequences[group_]) {}

  __device__ void run() {
    const BlockWeights& weights = job_.weights;
    start_copy(in_proj(0), weights.in_proj_weight, 3 * Width, threadIdx.x, kBlockThreads);
    start_copy(out_proj(), weights.out_proj_weight, Width, threadIdx.x, kBlockThreads);
    mlp_.load(weights.linear1_weight, weights.linear2_weight);
    copy_vectors();
    follow_kernels_ahead();
    number_ = kGroups * static_cast<int>(blockIdx.x) + group_;
    fetch();
#pragma unroll 1
    for (int first = kGroups * static_cast<int>(blockIdx.x); first < job_.shape.sequences;
         first += kGroups * static_cast<int>(gridDim.x)) {
      const int64_t row = number_;
      const bool has_sequence = row < job_.shape.sequences;
      read_dropout(row);
      copies_arrived();
      __syncthreads();
      number_ += kGroups * static_cast<int>(gridDim.x);
      if (has_sequence) of_attention(row);
      __syncthreads();
      mlp_.hidden(memory_.mlp, [&](int group, int column, float product) {
        const float hidden = product + __bfloat162float(vectors_.linear1_bias[column]);
        memory_.mlp.hidden.set(group, column, kept(0.5f * forward_pass::twice_gelu(hidden), inner_, column));
      });
      __syncthreads();
      mlp_.output(memory_.mlp);
      __syncthreads();
      if (has_sequence) of_outputs(row);
    }
  }

 private:
  using Base = Group<Width, HeadSize>;
  using Base::barrier, Base::own_column, Base::own_head, Base::token_of, Base::for_row_tile;
  using Base::group_, Base::thread_, Base::warp_, Base::lane_;
  using Base::kHeads, Base::kFours, Base::kRowTiles, Base::kScale, Base::kTilesOfWarp;

  __device__ Tile<Width> x() const {
    return {own_.x};
  }
  /// The weights of queries, keys or values (0, 1, 2).
  __device__ Tile<Width> in_proj(int third) const {
    return {memory_.in_proj + third * Width * Width};
  }
  __device__ Tile<Width> out_proj() const {
    return {memory_.out_proj};
  }
  __device__ float in_proj_bias(int third, int column) const {
    return __bfloat162float(vectors_.in_proj_bias[third * Width + column]);
  }

  __device__ void copy_vectors() {
    const auto copy = [](Bf16* to, const Bf16* from, int size) {
      const int i = threadIdx.x;
      if (i < size) to[i] = from[i];
    };
    const BlockWeights& from = job_.weights;
    copy(vectors_.in_proj_bias, from.in_proj_bias, 3 * Width);
    copy(vectors_.out_proj_bias, from.out_proj_bias, Width);
    copy(vectors_.linear1_bias, from.linear1_bias, 4 * Width);
    copy(vectors_.linear2_bias, from.linear2_bias, Width);
    copy(vectors_.norm1_weight, from.norm1_weight, Width);
    copy(vectors_.norm1_bias, from.norm1_bias, Width);
    copy(vectors_.norm2_weight, from.norm2_weight, Width);
    copy(vectors_.norm2_bias, from.norm2_bias, Width);
  }

  /// Starts to copy the sequence's x, if the sequence exists.
  __device__ void fetch() {
    if (number_ >= job_.shape.sequences) return;
    const int tokens = job_.shape.tokens;
    this->start_copy_x(x(), job_.activations.x + int64_t{number_} * tokens * Width, tokens);
  }

  /// From x to x1.
  __device__ void of_attention(int64_t row) {
    const int last = job_.shape.tokens - 1;
    if (const int column = own_column(); column >= 0) {
      own_.x_last[column] = __bfloat162float(*x().at(last, column));
    }
    for_row_tile([&](int first) {
      const Sums queries = times_rows(in_proj(0), first, [&](int at) {
        const uint32_t pair = x().pair(last, at + lane_.column);
        return lane_.row == 0 ? pair : 0;
      });
      take_rows(queries, first, [&](int column, float sum) {
        own_.query.set(column, (sum + in_proj_bias(0, column)) * (kLog2E * kScale));
      });
    });
    barrier();
    of_heads();
    barrier();
    of_tokens(job_.shape.first == nullptr ? 0 : __ldg(job_.shape.first + row));
    barrier();
    add_warps(row);
    barrier();
    fetch();
    for_row_tile([&](int first) {
      this->times_own_head(in_proj(2), first, own_.weighted, [&](int column, float sum) {
        const float output = fmaf(own_.kept_share[column / HeadSize], in_proj_bias(2, column), sum);
        own_.attention_output.set(column, output);
        job_.activations.attention_output[row * Width + column] = __float2bfloat16(output);
      });
    });
    barrier();
    for_row_tile([&](int first) {
      const Sums sums =
          times_rows(out_proj(), first, [&](int at) { return own_.attention_output.right(at); });
      take_rows(sums, first, [&](int column, float sum) {
        own_.sum[column] = own_.x_last[column] +
                           kept(sum + __bfloat162float(vectors_.out_proj_bias[column]), projection_, column);
      });
    });
    barrier();
    normalise(row, vectors_.norm1_weight, vectors_.norm1_bias, job_.activations.normed1,
              job_.activations.inverse1, [&](int column, float value) {
                own_.x1[column] = value;
                memory_.mlp.x1.set(group_, column, value);
              });
  }

  /// Reads all dropout of a row, so that nothing waits for it later.
  __device__ void read_dropout(int64_t row) {
    if (!Dropout) return;
    const int sequences = job_.shape.sequences;
    const int64_t of_lane = row - group_ + lane_.column / 2;  // the row of which the lane has hidden units
    inner_ = of_lane < sequences
                 ? __ldg(job_.keep.inner + of_lane * (4 * Width / 32) + mlp_.hidden_row() % (4 * Width) / 32)
                 : 0;
    if (row >= sequences) return;
    this->template read_attention_dropout<Dropout>(job_.keep.attention, row, job_.shape.tokens);
    projection_ = __ldg(job_.keep.projection + row * (Width / 32) + warp_ * kWarpTile % Width / 32);
    output_ = __ldg(job_.keep.output + row * (Width / 32) + max(own_column(), 0) / 32);
  }
  /// The value after dropout, whose word is that of the column.
  __device__ float kept(float value, uint32_t word, int column) const {
    if (!Dropout) return value;
    return (word >> (column % 32) & 1) != 0 ? value * job_.keep.hidden_scale : 0.0f;
  }

  /// u of each head, and the constant of its scores.
  __device__ void of_heads() {
    for_row_tile([&](int first) {
      Sums sums[kFours] = {};
#pragma unroll
      for (int row = 0; row < Width; row += 16) {
        const LeftFragment keys = left_of_transposed(in_proj(1), row, first);
        this->add_by_heads(sums[row / HeadSize / 4], keys, own_.query.high, row, 0);
        this->add_by_heads(sums[row / HeadSize / 4], keys, own_.query.low, row, 1);
      }
#pragma unroll
      for (int four = 0; four < kFours; ++four) {
        const float(&value)[4] = sums[four].value;
        const int column = first + lane_.row;
        this->set_split(own_.asked[0], own_head(four), column, value[0] + value[1]);
        this->set_split(own_.asked[0], own_head(four), column + 8, value[2] + value[3]);
      }
    });
    const int column = own_column();
    if (column < 0) return;  // whole warps
    const float constant = this->sum_of_head(own_.query.at(column) * in_proj_bias(1, column));
    if (column % HeadSize == 0) own_.constants[column / HeadSize] = constant;
  }

  /// The attention weights, relative to the warp's greatest, and their sums of x, which take the place of x.
  __device__ void of_tokens(int first_token) {
    const int tokens = job_.shape.tokens;
    float scores[kTilesOfWarp][kFours][2], most[kFours], totals[kFours] = {}, kept_sums[kFours] = {};
#pragma unroll
    for (float& of_four : most) of_four = -INFINITY;
#pragma unroll
    for (int number = 0; number < kTilesOfWarp; ++number) {
      const int first = token_of(number);
      Sums products[1][kFours] = {};
      if (first < tokens) this->times_columns_of_heads(products, x(), first, own_.asked);
#pragma unroll
      for (int four = 0; four < kFours; ++four) {
#pragma unroll
        for (int lower = 0; lower < 2; ++lower) {
          const int token = first + lane_.row + 8 * lower;
          const float(&value)[4] = products[0][four].value;
          const bool is_read = token >= first_token && token < tokens;
          scores[number][four][lower] = is_read ? value[2 * lower] + value[2 * lower + 1] : -INFINITY;
          most[four] = fmaxf(most[four], scores[number][four][lower]);
        }
      }
    }
#pragma unroll
    for (float& of_four : most) {
      of_four = fmaxf(this->most_of_tokens(of_four),
                      -FLT_MAX);  // where no token is read: no difference of infinities
    }
    Sums sums[kRowTiles][kFours] = {};
#pragma unroll
    for (int number = 0; number < kTilesOfWarp; ++number) {
      const int first = token_of(number);
      uint32_t pairs[kFours][2];
#pragma unroll
      for (int four = 0; four < kFours; ++four) {
#pragma unroll
        for (int lower = 0; lower < 2; ++lower) {
          const float weight = exp2_of(scores[number][four][lower] - most[four]);
          const bool is_kept = this->template keeps<Dropout>(number, four, first + lane_.row + 8 * lower);
          const float a = is_kept ? weight * (Dropout ? job_.keep.attention_scale : 1.0f) : 0.0f;
          totals[four] += weight;
          kept_sums[four] += a;
          pairs[four][lower] = split_of(a);
        }
      }
      if (first < tokens) this->add_tokens(sums, x(), first, pairs);
    }
    barrier();
    this->put_sums(sums, own_.sums_of_warps);
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      const float total = this->sum_of_tokens(totals[four]), kept = this->sum_of_tokens(kept_sums[four]);
      if (lane_.row != 0) continue;
      own_.most[warp_][own_head(four)] = most[four];
      own_.totals[warp_][own_head(four)] = total;
      own_.kept[warp_][own_head(four)] = kept;
    }
  }

  /// What a head's warps have, made relative to the greatest score of all and divided by the sum of weights.
  struct Shares {
    float of_warps[kGroupWarps], most = -FLT_MAX, total = 0;
  };
  __device__ Shares shares_of(int head) const {
    Shares shares;
#pragma unroll
    for (int warp = 0; warp < kGroupWarps; ++warp) shares.most = fmaxf(shares.most, own_.most[warp][head]);
#pragma unroll
    for (int warp = 0; warp < kGroupWarps; ++warp) {
      shares.of_warps[warp] = exp2_of(own_.most[warp][head] - shares.most);
      shares.total = fmaf(shares.of_warps[warp], own_.totals[warp][head], shares.total);
    }
    const float inverse = inverse_of(shares.total);
#pragma unroll
    for (float& share : shares.of_warps) share *= inverse;
    return shares;
  }

  /// Adds up the warps' sums over tokens.
  __device__ void add_warps(int64_t row) {
    const int head_of_four = thread_ % 4;
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      const int head = 4 * four + head_of_four;
      const Shares shares = shares_of(head);
#pragma unroll 1
      for (int column = thread_ / 4; column < Width; column += kGroupThreads / 4) {
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < kGroupWarps; ++warp) {
          const float2 both =
              *reinterpret_cast<const float2*>(own_.sums_of_warps[warp][four][column] + 2 * head_of_four);
          sum = fmaf(shares.of_warps[warp], both.x + both.y, sum);
        }
        this->set_split(own_.weighted, head, column, head < kHeads ? sum : 0.0f);
      }
      if (thread_ >= 4 || head >= kHeads) continue;
      float kept = 0;
#pragma unroll
      for (int warp = 0; warp < kGroupWarps; ++warp) {
        kept = fmaf(shares.of_warps[warp], own_.kept[warp][head], kept);
      }
      own_.kept_share[head] = kept;
      job_.activations.lse[row * kHeads + head] = __log2f(shares.total) + shares.most + own_.constants[head];
    }
  }

  /// From the MLP's outputs to the block's.
  __device__ void of_outputs(int64_t row) {
    if (const int column = own_column(); column >= 0) {
      float sum = __bfloat162float(vectors_.linear2_bias[column]);
#pragma unroll
      for (const auto& outputs : memory_.mlp.outputs) sum += outputs[group_][column];
      own_.sum[column] = own_.x1[column] + kept(sum, output_, column);
    }
    barrier();
    normalise(row, vectors_.norm2_weight, vectors_.norm2_bias, job_.activations.normed2,
              job_.activations.inverse2,
              [&](int column, float value) { job_.y[row * Width + column] = __float2bfloat16(value); });
  }

  /// One warp normalises `sum` and calls take(column, value) with the norm's outputs.
  template <class Take>
  __device__ void normalise(int64_t row, const Bf16* weight, const Bf16* bias, Bf16* normed, float* inverses,
                            const Take& take) {
    if (warp_ != 0) return;
    constexpr int kOwn = Width / kWarp;
    float value[kOwn], sum = 0, squares = 0;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) sum += value[k] = own_.sum[thread_ + kWarp * k];
    const float mean = warp_sum(sum) * (1.0f / Width);
#pragma unroll
    for (float& own : value) {
      own -= mean;
      squares = fmaf(own, own, squares);
    }
    const float inverse = rsqrtf(fmaf(warp_sum(squares), 1.0f / Width, forward_pass::kNormEpsilon));
    if (thread_ == 0) inverses[row] = inverse;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const int column = thread_ + kWarp * k;
      const float of_column = value[k] * inverse;
      normed[row * Width + column] = __float2bfloat16(of_column);
      take(column, fmaf(of_column, __bfloat162float(weight[column]), __bfloat162float(bias[column])));
    }
  }

  const Job& job_;
  ForwardMemory<Width, HeadSize>& memory_;
  Vectors<Width>& vectors_;
  ForwardSequence<Width, kHeads>& own_;
  int number_;                            ///< of the group's sequence
  uint32_t inner_, projection_, output_;  ///< words of dropout
  VectorMlp<Width> mlp_;
};

template <int Width, int HeadSize, bool Dropout>
__global__ void __launch_bounds__(kBlockThreads, 1) last_token_kernel(const __grid_constant__ Job job) {
  using OwnMemory = ForwardMemory<Width, HeadSize>;
  LastToken<Width, HeadSize, Dropout>(job, *reinterpret_cast<OwnMemory*>(dynamic_shared_memory())).run();
}

template <int Width, int HeadSize>
void launch(const Job& job, cudaStream_t stream) {
  const auto kernel = job.keep.attention != nullptr ? last_token_kernel<Width, HeadSize, true>
                                                    : last_token_kernel<Width, HeadSize, false>;
  const int blocks = std::min((job.shape.sequences + kGroups - 1) / kGroups, gpu::multiprocessors());
  launch_early("last_token_kernel", kernel, blocks, kBlockThreads, sizeof(ForwardMemory<Width, HeadSize>),
               stream, job);
}

}  // namespace

void last_token_forward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                        const BlockActivations& activations, __nv_bfloat16* y, cudaStream_t stream) {
  const Job job = {shape, weights, keep, activations, y};
  for_shape(shape, [&](auto width, auto head_size) {
    launch<decltype(width)::value, decltype(head_size)::value>(job, stream);
  });
}

}  // namespace adtrain::kernels
