#include <algorithm>

#include "base/Launch.cuh"
#include "kernels/block/attention_backward/AttentionBackward.h"
#include "kernels/block/attention_backward/Plan.cuh"
#include "kernels/block/last_token/BackwardMemory.cuh"
#include "kernels/block/last_token/Vectors.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// The backward pass of x1 = norm1(x_last + drop(out_proj(o))), where only a sequence's last token has an x1.
/// Vectors.cuh defines o, the attention output; do is its gradient. For the gradient g of x1, norm1's weight
/// w and dropout's factors m_hj:
///
///     du = inverse1 (g w − mean(g w) − normed1 · mean(g w · normed1)),  df = drop'(du),  do = Woᵀ df
///     v_h = Wv_hᵀ do_h,   da_hj = x_j · v_h + do_h · bv_h
///     ds_hj = p_hj (m_hj da_hj − do_h · o_h)                        p: the softmax, a = m p
///     dx_j = Σ_h a_hj v_h + ds_hj u_h
///     dx_last += du + Wqᵀ dq,  dq_h = Wk_h d_h / √d,  d_h = Σ_j ds_hj x_j
///
///     dWo = df oᵀ,  dWq = dq x_lastᵀ,  dWk_h = q_h d_hᵀ / √d,  dWv_h = do_h (Σ_j a_hj x_j)ᵀ
///
/// The gradient of the keys' bias is 0, because the bias shifts all scores equally. In each round, a thread
/// block's two groups take one sequence each. Then all threads add the four products of vectors to sums,
/// which stay in registers until the last round.
namespace adtrain::kernels {
namespace {

using namespace last_token;

using Job = backward_pass::Job;

template <int Width, int HeadSize, bool Dropout>
class LastToken : ThreadOfGroup<Width> {
 public:
  __device__ LastToken(const Job& job, Memory<Width, HeadSize>& memory)
      : job_(job), memory_(memory), weights_(memory.weights), own_(memory.sequences[group_]) {}

  __device__ void run() {
    weights_.start_copies(job_.weights);
    number_ = kGroups * static_cast<int>(blockIdx.x) + group_;
    fetch();
#pragma unroll 1
    for (int first = kGroups * static_cast<int>(blockIdx.x); first < job_.shape.sequences;
         first += kGroups * static_cast<int>(gridDim.x)) {
      copies_arrived();
      __syncthreads();
      if (number_ < job_.shape.sequences) {
        of_output();
        of_attention();
      } else {
        clear_factors();
      }
      __syncthreads();
      add_products();
      if (number_ < job_.shape.sequences) store_dx();
      number_ += kGroups * static_cast<int>(gridDim.x);
      __syncthreads();
      fetch();
    }
    write_sums();
  }

 private:
  using Place = ThreadOfGroup<Width>;
  using Place::barrier, Place::group_, Place::is_output, Place::leads, Place::output, Place::thread_;

  static constexpr int kHeads = Width / HeadSize, kSums = 2 * kHeads;
  /// A thread has this many neighbouring elements of a row of one product.
  static constexpr int kProductThreads = kBlockThreads / kProducts;
  static constexpr int kElements = Width * Width / kProductThreads;
  static constexpr int kRowThreads = Width / kElements;

  __device__ const Bf16* in_proj(int third) const {
    return weights_.in_proj + third * Width * kStride<Width>;
  }
  __device__ float bias(int third, int column) const {
    return __bfloat162float(weights_.in_proj_bias[third * Width + column]);
  }
  __device__ const float* d_attention_output() const {
    return own_.left[2];
  }

  /// Starts to copy the sequence's x, if the sequence exists.
  __device__ void fetch() {
    if (number_ >= job_.shape.sequences) return;
    const Bf16* from = job_.activations.x + int64_t{number_} * job_.shape.tokens * Width;
    start_copy_rows<Width>(own_.x, from, job_.shape.tokens, thread_, kThreads);
  }

  /// The backward pass of norm1 and out_proj; recomputes the query.
  __device__ void of_output() {
    const int tokens = job_.shape.tokens;
    const int64_t row = number_;
    if (thread_ < kWarp) norm_backward(row);
    if (thread_ < Width) {
      own_.x_last[thread_] = __bfloat162float(own_.x[(tokens - 1) * kStride<Width> + thread_]);
      own_.attention_output[thread_] =
          __bfloat162float(job_.activations.attention_output[row * Width + thread_]);
    }
    barrier();
    if (is_output()) {
      const float query = quad_product<Width>(in_proj(0), output(), own_.x_last) + bias(0, output());
      const float d_attention_output =
          quad_column_product<Width, Width>(weights_.out_proj, output(), own_.left[3]);
      if (leads()) {
        own_.left[1][output()] = query / std::sqrt(static_cast<float>(HeadSize));
        own_.left[2][output()] = d_attention_output;
      }
    }
    barrier();
    for (int i = thread_; i < kHeads * Width; i += kThreads) {
      const int head = i / Width, column = i % Width, first = head * HeadSize;
      own_.vectors[head][column] =
          head_column_product<HeadSize, Width>(in_proj(2), first, column, d_attention_output());
      own_.vectors[kHeads + head][column] =
          head_column_product<HeadSize, Width>(in_proj(1), first, column, own_.left[1]);
    }
    if (thread_ < kHeads) {
      const int first = thread_ * HeadSize;
      const Bf16* biases = weights_.in_proj_bias + first;
      own_.of_scores[thread_] = head_product<HeadSize>(biases + Width, own_.left[1] + first);
      own_.of_weights[thread_] = head_product<HeadSize>(biases + 2 * Width, d_attention_output() + first);
      float delta = 0;
#pragma unroll
      for (int i = 0; i < HeadSize; ++i)
        delta = fmaf(d_attention_output()[first + i], own_.attention_output[first + i], delta);
      own_.deltas[thread_] = delta;
    }
    barrier();
  }

  /// One warp computes du and df, and adds to the sums for norm1's parameters.
  __device__ void norm_backward(int64_t row) {
    constexpr int kOwn = Width / kWarp;
    float g[kOwn], normed[kOwn], mean = 0, mean_of_normed = 0;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const int column = thread_ + kWarp * k;
      const float of_x1 = __bfloat162float(job_.dx1[row * Width + column]);
      normed[k] = __bfloat162float(job_.activations.normed1[row * Width + column]);
      g[k] = of_x1 * __bfloat162float(weights_.norm1_weight[column]);
      norm_sums_[0][k] += of_x1 * normed[k];
      norm_sums_[1][k] += of_x1;
      mean += g[k];
      mean_of_normed = fmaf(g[k], normed[k], mean_of_normed);
    }
    mean = warp_sum(mean) * (1.0f / Width);
    mean_of_normed = warp_sum(mean_of_normed) * (1.0f / Width);
    const float inverse = job_.activations.inverse1[row];
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const int column = thread_ + kWarp * k;
      const float du = inverse * (g[k] - mean - normed[k] * mean_of_normed);
      const bool kept = is_kept<Dropout>(job_.keep.projection + row * (Width / 32), column);
      own_.du[column] = du;
      own_.left[3][column] = kept ? du * (Dropout ? job_.keep.hidden_scale : 1.0f) : 0.0f;
    }
  }

  /// Computes dx, which replaces x, and the factors of the products.
  __device__ void of_attention() {
    const int tokens = job_.shape.tokens, last = tokens - 1;
    const int first = job_.shape.first == nullptr ? 0 : __ldg(job_.shape.first + number_);
    float weights[kSums];
    weigh(weights, first);
    barrier();
    own_.pool.add(own_.x, &own_.weights[0][0], first, tokens, thread_);
    barrier();
    for (int i = thread_; i < kSums * Width; i += kThreads) {
      own_.pooled[i / Width][i % Width] = own_.pool.total(i / Width, i % Width);
    }
    if (thread_ < tokens) {
#pragma unroll 1
      for (int column = 0; column < Width; column += 8) put_dx(weights, column);
    }
    barrier();
    if (is_output()) {
      const float dq = quad_product<Width>(in_proj(1), output(), own_.pooled[kHeads + output() / HeadSize]);
      if (leads()) own_.left[0][output()] = dq / std::sqrt(static_cast<float>(HeadSize));
    }
    barrier();
    if (is_output()) {
      float dx = own_.du[output()] + quad_column_product<Width, Width>(in_proj(0), output(), own_.left[0]);
      for (int sum = 0; sum < kSums; ++sum) {
        dx = fmaf(own_.weights[last][sum], own_.vectors[sum][output()], dx);
      }
      if (leads()) own_.x[last * kStride<Width> + output()] = __float2bfloat16(dx);
    }
  }

  /// Computes a and ds of this thread's token; they are 0 for padding and beyond the last token.
  __device__ void weigh(float (&weights)[kSums], int first) {
    const int tokens = job_.shape.tokens, words = (tokens + 31) / 32;
    const bool is_read = thread_ >= first && thread_ < tokens;
#pragma unroll
    for (float& weight : weights) weight = 0;
    if (is_read) {
      float products[kSums];
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        products[head] = own_.of_weights[head];
        products[kHeads + head] = own_.of_scores[head];
      }
#pragma unroll 1
      for (int column = 0; column < Width; column += 8) {
        const Eight x(own_.x + thread_ * kStride<Width> + column);
#pragma unroll
        for (int sum = 0; sum < kSums; ++sum) {
          products[sum] = plus_product(products[sum], x, Eight(own_.vectors[sum] + column));
        }
      }
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        const int64_t of_head = int64_t{number_} * kHeads + head;
        const float weight =
            exp2_of(fmaf(products[kHeads + head], kLog2E, -__ldg(job_.activations.lse + of_head)));
        const bool kept = is_kept<Dropout>(job_.keep.attention + of_head * words, thread_);
        const float factor = kept ? (Dropout ? job_.keep.attention_scale : 1.0f) : 0.0f;
        weights[head] = factor * weight;
        weights[kHeads + head] = weight * fmaf(factor, products[head], -own_.deltas[head]);
      }
    }
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      const float kept = warp_sum(weights[head]);
      if (thread_ % kWarp == 0) own_.kept_of_warps[thread_ / kWarp][head] = kept;
    }
#pragma unroll
    for (int sum = 0; sum < kSums; ++sum) own_.weights[thread_][sum] = weights[sum];
  }

  /// Computes eight columns of dx of this thread's token.
  __device__ void put_dx(const float (&weights)[kSums], int column) {
    float dx[8] = {};
#pragma unroll
    for (int sum = 0; sum < kSums; ++sum) {
      const Eight vector(own_.vectors[sum] + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) dx[i] = fmaf(weights[sum], vector.value[i], dx[i]);
    }
    *reinterpret_cast<uint4*>(own_.x + thread_ * kStride<Width> + column) = {
        packed(dx[0], dx[1]), packed(dx[2], dx[3]), packed(dx[4], dx[5]), packed(dx[6], dx[7])};
  }

  __device__ void store_dx() const {
    constexpr int kChunks = Width / 8;
    Bf16* to = job_.dx + int64_t{number_} * job_.shape.tokens * Width;
    for (int chunk = thread_; chunk < job_.shape.tokens * kChunks; chunk += kThreads) {
      *reinterpret_cast<uint4*>(to + 8 * chunk) =
          *reinterpret_cast<const uint4*>(own_.x + chunk / kChunks * kStride<Width> + 8 * (chunk % kChunks));
    }
  }

  /// For a group without a sequence: clears the factors, so that its products add nothing.
  __device__ void clear_factors() {
    for (int i = thread_; i < kProducts * Width; i += kThreads) own_.left[i / Width][i % Width] = 0.0f;
    for (int i = thread_; i < kSums * Width; i += kThreads) own_.pooled[i / Width][i % Width] = 0.0f;
    for (int i = thread_; i < kWarps * kHeads; i += kThreads)
      own_.kept_of_warps[i / kHeads][i % kHeads] = 0.0f;
    if (thread_ < Width) own_.x_last[thread_] = own_.attention_output[thread_] = 0.0f;
  }

  __device__ static int product() {
    return threadIdx.x / kProductThreads;
  }
  __device__ static int row() {
    return threadIdx.x % kProductThreads / kRowThreads;
  }
  __device__ static int first_column() {
    return threadIdx.x % kRowThreads * kElements;
  }

  /// All threads of the block add the products of both groups.
  __device__ void add_products() {
#pragma unroll
    for (const Sequence<Width, kHeads>& sequence : memory_.sequences) {
      const int head = row() / HeadSize;
      const float* of_row = product() == 0   ? sequence.x_last
                            : product() == 1 ? sequence.pooled[kHeads + head]
                            : product() == 2 ? sequence.pooled[head]
                                             : sequence.attention_output;
      const float left = sequence.left[product()][row()];
      const float* right = of_row + first_column();
#pragma unroll
      for (int i = 0; i < kElements; i += 8) {
        const Eight factors(right + i);
#pragma unroll
        for (int k = 0; k < 8; ++k) products_[i + k] = fmaf(left, factors.value[k], products_[i + k]);
      }
      float of_bias = product() == 1 ? 0.0f : left;
      if (product() == 2) {
        float kept = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) kept += sequence.kept_of_warps[warp][head];
        of_bias *= kept;
      }
      bias_sum_ += of_bias;
    }
  }

  __device__ void write_sums() {
    constexpr auto kPlaces = AttentionGradients::of(Width);
    float* part = job_.parts + int64_t{blockIdx.x} * kPlaces.total;
    for (int i = kPlaces.in_proj_bias + threadIdx.x; i < kPlaces.out_proj_weight; i += kBlockThreads)
      part[i] = 0;
    for (int i = kPlaces.out_proj_bias + threadIdx.x; i < kPlaces.total; i += kBlockThreads) part[i] = 0;
    if (thread_ < kWarp) {
#pragma unroll
      for (int kind = 0; kind < 2; ++kind) {
#pragma unroll
        for (int k = 0; k < Width / kWarp; ++k) {
          memory_.norm_sums[group_][kind][thread_ + kWarp * k] = norm_sums_[kind][k];
        }
      }
    }
    __syncthreads();
    const int in_third = product() * Width + row();
    float* matrix = product() == 3 ? part + kPlaces.out_proj_weight + row() * Width
                                   : part + kPlaces.in_proj_weight + in_third * Width;
#pragma unroll
    for (int i = 0; i < kElements; ++i) matrix[first_column() + i] = products_[i];
    if (first_column() == 0) {
      part[product() == 3 ? kPlaces.out_proj_bias + row() : kPlaces.in_proj_bias + in_third] = bias_sum_;
    }
    if (threadIdx.x < 2 * Width) {
      const int kind = threadIdx.x / Width, column = threadIdx.x % Width;
      part[(kind == 0 ? kPlaces.norm1_weight : kPlaces.norm1_bias) + column] =
          memory_.norm_sums[0][kind][column] + memory_.norm_sums[1][kind][column];
    }
  }

  const Job& job_;
  Memory<Width, HeadSize>& memory_;
  Weights<Width>& weights_;
  Sequence<Width, kHeads>& own_;
  int number_;  ///< of the group's sequence
  float products_[kElements] = {};
  float bias_sum_ = 0;
  float norm_sums_[2][Width / kWarp] = {};  ///< for norm1's weight and bias, in the group's first warp
};

template <int Width, int HeadSize, bool Dropout>
__global__ void __launch_bounds__(kBlockThreads, 1)
    last_token_backward_kernel(const __grid_constant__ Job job) {
  using OwnMemory = Memory<Width, HeadSize>;
  LastToken<Width, HeadSize, Dropout>(job, *reinterpret_cast<OwnMemory*>(dynamic_shared_memory())).run();
}

template <int Width, int HeadSize>
void launch(const Job& job, cudaStream_t stream) {
  const auto kernel = job.keep.attention != nullptr ? last_token_backward_kernel<Width, HeadSize, true>
                                                    : last_token_backward_kernel<Width, HeadSize, false>;
  gpu::launch("last_token_backward_kernel", kernel, last_token_parts(job.shape), kBlockThreads,
              sizeof(Memory<Width, HeadSize>), stream, job);
}

}  // namespace

int last_token_parts(const BlockShape& shape) {
  return std::min((shape.sequences + kGroups - 1) / kGroups, gpu::multiprocessors());
}

void last_token_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                         const BlockActivations& activations, const Bf16* dx1, Bf16* dx, float* parts,
                         cudaStream_t stream) {
  const Job job = {shape, weights, keep, activations, dx1, dx, parts, /*carried=*/nullptr};
  for_shape(shape, [&](auto width, auto head_size) {
    launch<decltype(width)::value, decltype(head_size)::value>(job, stream);
  });
}

}  // namespace adtrain::kernels
