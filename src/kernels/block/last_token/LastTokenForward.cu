#include <algorithm>

#include "base/Launch.cuh"
#include "kernels/block/forward/BlockForward.h"
#include "kernels/block/forward/Mlp.cuh"
#include "kernels/block/forward/Norm.cuh"
#include "kernels/block/forward/PostNorm.cuh"
#include "kernels/block/last_token/LastTokenBlock.cuh"
#include "kernels/block/last_token/Vectors.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// The forward pass of a block that outputs only the last token's row; LastTokenBlock.cuh has its
/// mathematics. Thread blocks are persistent, one per multiprocessor, with all weights in shared memory. Each
/// of a thread block's two groups of threads takes sequences of its own.
namespace adtrain::kernels {
namespace {

using namespace last_token;

using Job = forward_pass::PostNorm<false>::Job;

/// Shared memory for the whole launch, 106.6 KiB at D = 64.
template <int Width>
struct Weights {
  Bf16 in_proj[3 * Width * kStride<Width>], out_proj[Width * kStride<Width>];
  Bf16 linear1[4 * Width * kStride<Width>], linear2[Width * kStride<4 * Width>];
  Bf16 in_proj_bias[3 * Width], out_proj_bias[Width], linear1_bias[4 * Width], linear2_bias[Width];
  Bf16 norm1_weight[Width], norm1_bias[Width], norm2_weight[Width], norm2_bias[Width];

  /// All threads of the block call this together.
  __device__ void start_copies(const BlockWeights& from) {
    start_copy_matrix<Width>(in_proj, from.in_proj_weight, 3 * Width);
    start_copy_matrix<Width>(out_proj, from.out_proj_weight, Width);
    start_copy_matrix<Width>(linear1, from.linear1_weight, 4 * Width);
    start_copy_matrix<4 * Width>(linear2, from.linear2_weight, Width);
    copy_vector(in_proj_bias, from.in_proj_bias, 3 * Width);
    copy_vector(out_proj_bias, from.out_proj_bias, Width);
    copy_vector(linear1_bias, from.linear1_bias, 4 * Width);
    copy_vector(linear2_bias, from.linear2_bias, Width);
    copy_vector(norm1_weight, from.norm1_weight, Width);
    copy_vector(norm1_bias, from.norm1_bias, Width);
    copy_vector(norm2_weight, from.norm2_weight, Width);
    copy_vector(norm2_bias, from.norm2_bias, Width);
  }

 private:
  template <int Columns>
  __device__ static void start_copy_matrix(Bf16* to, const Bf16* from, int rows) {
    start_copy_rows<Columns>(to, from, rows, threadIdx.x, kBlockThreads);
  }
  __device__ static void copy_vector(Bf16* to, const Bf16* from, int size) {
    for (int i = threadIdx.x; i < size; i += kBlockThreads) to[i] = from[i];
  }
};

/// The data of a group for its sequence, 56.5 KiB at D = 64 with 8 heads.
template <int Width, int Heads>
struct alignas(16) Sequence {
  Bf16 x[kMostTokens * kStride<Width>];
  float weights[kMostTokens][Heads];  ///< attention weights, before the division by their sum
  Pool<Width, Heads> pool;
  float asked[Heads][Width];         ///< first u, then Σ a x
  float of_warps[3][kWarps][Heads];  ///< greatest scores, sums of weights, sums of kept weights
  float stream[Width];               ///< first x_last, then x1
  float query[Width];                ///< first the query, then the attention output
  float sum[Width];                  ///< input of the norm
  float hidden[4 * Width];
  float constant[Heads];  ///< constant term of a head's scores
};

template <int Width, int HeadSize>
struct Memory {
  Weights<Width> weights;
  Sequence<Width, Width / HeadSize> sequences[kGroups];
};
static_assert(sizeof(Memory<64, 8>) <= 227 * 1024, "a thread block's shared memory");

template <int Width, int HeadSize, bool Dropout>
class LastToken : ThreadOfGroup<Width> {
 public:
  __device__ LastToken(const Job& job, Memory<Width, HeadSize>& memory)
      : job_(job), weights_(memory.weights), own_(memory.sequences[group_]) {}

  __device__ void run() {
    weights_.start_copies(job_.weights);
    number_ = kGroups * static_cast<int>(blockIdx.x) + group_;
    fetch();
    copies_arrived();
    __syncthreads();
#pragma unroll 1
    while (number_ < job_.shape.sequences) {
      copies_arrived();
      barrier();
      attend();
      const int64_t row = number_;
      number_ += kGroups * static_cast<int>(gridDim.x);
      fetch();
      finish(row);
    }
  }

 private:
  using Place = ThreadOfGroup<Width>;
  using Place::barrier, Place::group_, Place::is_output, Place::leads, Place::output, Place::thread_;

  static constexpr int kHeads = Width / HeadSize;

  /// Starts to copy the sequence's x, if the sequence exists.
  __device__ void fetch() {
    if (number_ >= job_.shape.sequences) return;
    const Bf16* from = job_.activations.x + int64_t{number_} * job_.shape.tokens * Width;
    start_copy_rows<Width>(own_.x, from, job_.shape.tokens, thread_, kThreads);
  }

  /// From x to the attention output of the last token, in `query`. Afterwards x is no longer needed.
  __device__ void attend() {
    const int tokens = job_.shape.tokens;
    if (thread_ < Width) {
      own_.stream[thread_] = __bfloat162float(own_.x[(tokens - 1) * kStride<Width> + thread_]);
    }
    barrier();
    if (is_output()) {
      const float query = quad_product<Width>(weights_.in_proj, output(), own_.stream) +
                          __bfloat162float(weights_.in_proj_bias[output()]);
      if (leads()) own_.query[output()] = query * kLog2E / std::sqrt(static_cast<float>(HeadSize));
    }
    barrier();
    for (int i = thread_; i < kHeads * Width; i += kThreads) {
      const int first = i / Width * HeadSize;
      own_.asked[i / Width][i % Width] = head_column_product<HeadSize, Width>(
          weights_.in_proj + Width * kStride<Width>, first, i % Width, own_.query);
    }
    if (thread_ < kHeads) {
      const int first = thread_ * HeadSize;
      own_.constant[thread_] =
          head_product<HeadSize>(weights_.in_proj_bias + Width + first, own_.query + first);
    }
    barrier();

    weigh();
    barrier();
    const int first = first_token();
    own_.pool.add(own_.x, &own_.weights[0][0], first, tokens, thread_);
    barrier();
    for (int i = thread_; i < kHeads * Width; i += kThreads) {
      own_.asked[i / Width][i % Width] =
          own_.pool.total(i / Width, i % Width) * inverse_of(of_all_warps(1, i / Width));
    }
    barrier();
    if (is_output()) {
      const int head = output() / HeadSize;
      const float kept = of_all_warps(2, head) * inverse_of(of_all_warps(1, head));
      const float attention_output =
          quad_product<Width>(weights_.in_proj, 2 * Width + output(), own_.asked[head]) +
          kept * __bfloat162float(weights_.in_proj_bias[2 * Width + output()]);
      if (leads()) {
        own_.query[output()] = attention_output;
        job_.activations.attention_output[int64_t{number_} * Width + output()] =
            __float2bfloat16(attention_output);
      }
    }
    barrier();
  }

  __device__ int first_token() const {
    return job_.shape.first == nullptr ? 0 : __ldg(job_.shape.first + number_);
  }

  /// Computes the attention weights; each thread has one token.
  __device__ void weigh() {
    const int lane = thread_ % kWarp, warp = thread_ / kWarp;
    const bool is_read = thread_ >= first_token() && thread_ < job_.shape.tokens;
    float score[kHeads];
#pragma unroll
    for (int head = 0; head < kHeads; ++head) score[head] = own_.constant[head];
    if (is_read) {
#pragma unroll 1
      for (int column = 0; column < Width; column += 8) {
        const Eight x(own_.x + thread_ * kStride<Width> + column);
#pragma unroll
        for (int head = 0; head < kHeads; ++head) {
          score[head] = plus_product(score[head], x, Eight(own_.asked[head] + column));
        }
      }
    }
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      const float most = warp_max(is_read ? score[head] : -INFINITY);
      if (lane == 0) own_.of_warps[0][warp][head] = most;
    }
    barrier();
    const int words = (job_.shape.tokens + 31) / 32;
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      float most = own_.of_warps[0][0][head];
      for (int other = 1; other < kWarps; ++other) most = fmaxf(most, own_.of_warps[0][other][head]);
      const float weight = is_read ? exp2_of(score[head] - most) : 0.0f;
      const uint32_t* of_head = job_.keep.attention + (int64_t{number_} * kHeads + head) * words;
      const bool kept = is_read && is_kept<Dropout>(of_head, thread_);
      const float dropped = kept ? weight * (Dropout ? job_.keep.attention_scale : 1.0f) : 0.0f;
      own_.weights[thread_][head] = dropped;
      const float sum = warp_sum(weight), sum_kept = warp_sum(dropped);
      if (lane == 0) {
        own_.of_warps[1][warp][head] = sum;
        own_.of_warps[2][warp][head] = sum_kept;
      }
    }
    barrier();
    if (thread_ < kHeads) {
      float most = own_.of_warps[0][0][thread_];
      for (int other = 1; other < kWarps; ++other) most = fmaxf(most, own_.of_warps[0][other][thread_]);
      job_.activations.lse[int64_t{number_} * kHeads + thread_] = __log2f(of_all_warps(1, thread_)) + most;
    }
  }

  __device__ float of_all_warps(int kind, int head) const {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += own_.of_warps[kind][warp][head];
    return sum;
  }

  /// From the attention output to the block's output.
  __device__ void finish(int64_t row) {
    const BlockActivations& kept = job_.activations;
    if (is_output()) {
      add_to_stream(quad_product<Width>(weights_.out_proj, output(), own_.query), weights_.out_proj_bias,
                    job_.keep.projection + row * (Width / 32));
    }
    barrier();
    normalise(row, weights_.norm1_weight, weights_.norm1_bias, kept.normed1, kept.inverse1,
              [&](int column, float value) { own_.stream[column] = value; });
    barrier();
    if (thread_ < 4 * Width) {
      const float hidden = product<Width>(weights_.linear1 + thread_ * kStride<Width>, own_.stream) +
                           __bfloat162float(weights_.linear1_bias[thread_]);
      const bool is_there = is_kept<Dropout>(job_.keep.inner + row * (4 * Width / 32), thread_);
      own_.hidden[thread_] = is_there ? 0.5f * scale() * forward_pass::twice_gelu(hidden) : 0.0f;
    }
    barrier();
    if (is_output()) {
      add_to_stream(quad_product<4 * Width>(weights_.linear2, output(), own_.hidden), weights_.linear2_bias,
                    job_.keep.output + row * (Width / 32));
    }
    barrier();
    normalise(row, weights_.norm2_weight, weights_.norm2_bias, kept.normed2, kept.inverse2,
              [&](int column, float value) { job_.y[row * Width + column] = __float2bfloat16(value); });
  }

  __device__ float scale() const {
    return Dropout ? job_.keep.hidden_scale : 1.0f;
  }

  __device__ void add_to_stream(float branch, const Bf16* bias, const uint32_t* words) {
    branch += __bfloat162float(bias[output()]);
    const float kept = is_kept<Dropout>(words, output()) ? branch * scale() : 0.0f;
    if (leads()) own_.sum[output()] = own_.stream[output()] + kept;
  }

  /// One warp normalises `sum` and calls take(column, value) with the norm's outputs.
  template <class Take>
  __device__ void normalise(int64_t row, const Bf16* weight, const Bf16* bias, Bf16* normed, float* inverses,
                            const Take& take) {
    if (thread_ >= kWarp) return;
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
  Weights<Width>& weights_;
  Sequence<Width, kHeads>& own_;
  int number_;  ///< of the group's sequence
};

template <int Width, int HeadSize, bool Dropout>
__global__ void __launch_bounds__(kBlockThreads, 1) last_token_kernel(const __grid_constant__ Job job) {
  using OwnMemory = Memory<Width, HeadSize>;
  LastToken<Width, HeadSize, Dropout>(job, *reinterpret_cast<OwnMemory*>(dynamic_shared_memory())).run();
}

template <int Width, int HeadSize>
void launch(const Job& job, cudaStream_t stream) {
  const auto kernel = job.keep.attention != nullptr ? last_token_kernel<Width, HeadSize, true>
                                                    : last_token_kernel<Width, HeadSize, false>;
  const int blocks = std::min((job.shape.sequences + kGroups - 1) / kGroups, gpu::multiprocessors());
  gpu::launch("last_token_kernel", kernel, blocks, kBlockThreads, sizeof(Memory<Width, HeadSize>), stream,
              job);
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
