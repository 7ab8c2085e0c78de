#include <algorithm>

#include "base/Launch.cuh"
#include "kernels/block/attention_backward/AttentionBackward.h"
#include "kernels/block/attention_backward/Plan.cuh"
#include "kernels/block/last_token/BackwardMemory.cuh"
#include "kernels/block/last_token/Group.cuh"
#include "kernels/block/last_token/LastTokenBlock.cuh"
#include "kernels/block/last_token/NormGradient.cuh"
#include "kernels/block/last_token/OuterProducts.cuh"
#include "kernels/block/last_token/SplitVector.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/PartialSums.cuh"
#include "kernels/primitives/RowProducts.cuh"
#include "kernels/primitives/Tile.cuh"

/// The backward pass of x1 = norm1(x_last + drop(out_proj(o))), where only a sequence's last token has an x1.
/// LastTokenBlock.cuh defines o, the attention output; do is its gradient. For the gradient g of x1, norm1's
/// weight w and dropout's factors m_hj:
///
///     du = inverse1 (g w − mean(g w) − normed1 · mean(g w · normed1)),  df = drop'(du),  do = Woᵀ df
///     v_h = Wv_hᵀ do_h,   da_hj = x_j · v_h + do_h · bv_h
///     ds_hj = p_hj (m_hj da_hj − do_h · o_h)                        p: the softmax, a = m p
///     dx_j = Σ_h a_hj v_h + ds_hj u_h
///     dx_last += du + Wqᵀ dq,  dq_h = Wk_h d_h / √d,  d_h = Σ_j ds_hj x_j
///
///     dWo = df oᵀ,  dWq = dq x_lastᵀ,  dWk_h = q_h d_hᵀ / √d,  dWv_h = do_h (Σ_j a_hj x_j)ᵀ
///
/// The gradient of the keys' bias is 0, because the bias shifts all scores equally.
///
/// All products are on the tensor cores. v and u of a head are neighbouring columns of a matrix with eight
/// columns for four heads. x times it gives each lane da and s of its tokens and its head, which it turns
/// into a and ds: the left operand of dx, a product with the same matrix, and transposed the right one of the
/// sums over tokens. Vectors and that matrix are split (SplitVector.cuh) where scores depend on them.
///
/// A thread block's groups take one sequence each, so that as many are under way as fit in shared memory.
/// Then all threads add the weights' gradients to sums, which stay in registers until the last round.
namespace adtrain::kernels {
namespace {

using namespace last_token;

using Job = backward_pass::Job;

template <int Width, int HeadSize, bool Dropout>
class LastToken : Group<Width, HeadSize> {
 public:
  __device__ LastToken(const Job& job, BackwardMemory<Width, HeadSize>& memory)
      : job_(job), memory_(memory), weights_(memory.weights), own_(memory.sequences[group_]) {}

  __device__ void run() {
    weights_.start_copies(job_.weights);
    follow_kernels_ahead();
    number_ = kGroups * static_cast<int>(blockIdx.x) + group_;
    fetch();
#pragma unroll 1
    for (int first = kGroups * static_cast<int>(blockIdx.x); first < job_.shape.sequences;
         first += kGroups * static_cast<int>(gridDim.x)) {
      const bool has_sequence = number_ < job_.shape.sequences;
      if (has_sequence) {
        read_output();
        if (warp_ == 0) norm_backward();
      } else {
        memory_.factors.clear(group_, thread_);
      }
      copies_arrived();
      __syncthreads();
      const int64_t row = number_;
      number_ += kGroups * static_cast<int>(gridDim.x);
      if (has_sequence) of_sequence(row);
      __syncthreads();
      products_.add(memory_.factors);
      __syncthreads();
    }
    write_sums();
    __syncthreads();
    static_assert(partial_sums::bytes_for(kBlockThreads) <= sizeof memory_);
    partial_sums::add_parts_ahead<kBlockThreads>(job_.ahead, (job_.shape.sequences + kGroups - 1) / kGroups,
                                                 reinterpret_cast<char*>(&memory_));
  }

 private:
  using Base = Group<Width, HeadSize>;
  using Base::barrier, Base::for_row_tile, Base::own_column, Base::own_head, Base::token_of, Base::set_pair;
  using Base::group_, Base::thread_, Base::warp_, Base::lane_;
  using Base::kHeads, Base::kFours, Base::kRowTiles, Base::kScale;

  __device__ Tile<Width> x() const {
    return {own_.x};
  }

  /// Starts to copy the sequence's x, if the sequence exists.
  __device__ void fetch() {
    if (number_ >= job_.shape.sequences) return;
    const int tokens = job_.shape.tokens;
    this->start_copy_x(x(), job_.activations.x + int64_t{number_} * tokens * Width, tokens);
  }

  /// Reads what is needed of the forward pass besides x.
  __device__ void read_output() {
    this->template read_attention_dropout<Dropout>(job_.keep.attention, number_, job_.shape.tokens);
    if (const int column = own_column(); column >= 0) {
      const Bf16 output = job_.activations.attention_output[int64_t{number_} * Width + column];
      memory_.factors.attention_output()[column][group_] = output;
      attention_output_ = __bfloat162float(output);
      lse_ = __ldg(job_.activations.lse + int64_t{number_} * kHeads + column / HeadSize);
    }
  }

  /// One warp computes du and df.
  __device__ void norm_backward() {
    const int64_t row = number_;
    const BlockActivations& activations = job_.activations;
    norm_.of_row(job_.dx1 + row * Width, activations.normed1 + row * Width, activations.inverse1[row],
                 job_.weights.norm1_weight, [&](int column, float du) {
                   const bool kept = is_kept<Dropout>(job_.keep.projection + row * (Width / 32), column);
                   const float df = kept ? du * (Dropout ? job_.keep.hidden_scale : 1.0f) : 0.0f;
                   own_.du[column] = du;
                   own_.df.set(column, df);
                   memory_.factors.left(3)[column][group_] = __float2bfloat16(df);
                 });
  }

  __device__ void of_sequence(int64_t row) {
    of_output();
    barrier();
    of_heads();
    barrier();
    Bf16* dx = job_.dx + row * job_.shape.tokens * Width;
    of_tokens(dx, job_.shape.first == nullptr ? 0 : __ldg(job_.shape.first + row));
    barrier();
    add_warps();
    barrier();
    fetch();
    for_row_tile([&](int first) {
      this->times_own_head(weights_.of(1), first, own_.d, [&](int column, float sum) {
        own_.dq.set(column, sum * kScale);
        memory_.factors.left(0)[column][group_] = __float2bfloat16(sum * kScale);
      });
    });
    barrier();
    of_last_token(dx + int64_t{job_.shape.tokens - 1} * Width);
  }

  /// The query and do.
  __device__ void of_output() {
    const int last = job_.shape.tokens - 1;
    if (const int column = own_column(); column >= 0) {
      memory_.factors.x_last()[column][group_] = *x().at(last, column);
    }
    for_row_tile([&](int first) {
      const Sums queries = times_rows(weights_.of(0), first, [&](int row) {
        const uint32_t pair = x().pair(last, row + lane_.column);
        return lane_.row == 0 ? pair : 0;
      });
      const Sums gradients =
          times_columns(Tile<Width>{weights_.out_proj}, first, [&](int row) { return own_.df.right(row); });
      take_rows(queries, first, [&](int column, float sum) {
        const float query = (sum + weights_.bias(0, column)) * kScale;
        own_.query.set(column, query);
        memory_.factors.left(1)[column][group_] = __float2bfloat16(query);
      });
      take_rows(gradients, first, [&](int column, float sum) {
        own_.d_attention_output.set(column, sum);
        memory_.factors.left(2)[column][group_] = __float2bfloat16(sum);
      });
    });
  }

  /// v and u of each head, and what a head's scores and da have in common.
  __device__ void of_heads() {
    for_row_tile([&](int first) {
      Sums sums[2][kFours] = {};  // of the two parts of vectors
#pragma unroll
      for (int row = 0; row < Width; row += 16) {
        const int four = row / HeadSize / 4;
        const LeftFragment values = left_of_transposed(weights_.of(2), row, first),
                           keys = left_of_transposed(weights_.of(1), row, first);
        this->add_by_heads(sums[0][four], values, own_.d_attention_output.high, row, 0);
        this->add_by_heads(sums[1][four], values, own_.d_attention_output.low, row, 0);
        this->add_by_heads(sums[0][four], keys, own_.query.high, row, 1);
        this->add_by_heads(sums[1][four], keys, own_.query.low, row, 1);
      }
#pragma unroll
      for (int four = 0; four < kFours; ++four) {
        const float(&high)[4] = sums[0][four].value;
        const float(&low)[4] = sums[1][four].value;
#pragma unroll
        for (int lower = 0; lower < 2; ++lower) {
          const SplitPair pair =
              split(high[2 * lower] + low[2 * lower], high[2 * lower + 1] + low[2 * lower + 1]);
          const int column = first + lane_.row + 8 * lower;
          set_pair(own_.vectors[0][four][column], lane_.column, pair.high);
          set_pair(own_.vectors[1][four][column], lane_.column, pair.low);
        }
      }
    });
    const int column = own_column(), head = column / HeadSize;
    if (column < 0) return;  // whole warps
    const float d_output = own_.d_attention_output.at(column);
    const float of_scores = this->sum_of_head(own_.query.at(column) * weights_.bias(1, column));
    const float of_weights = this->sum_of_head(d_output * weights_.bias(2, column));
    const float delta = this->sum_of_head(d_output * attention_output_);
    if (column % HeadSize == 0) {
      own_.of_exponents[head] = fmaf(of_scores, kLog2E, -lse_);
      own_.of_weights[head] = of_weights;
      own_.deltas[head] = delta;
    }
  }

  /// a, ds, their sums and dx. The sums over tokens take the place of x.
  __device__ void of_tokens(Bf16* dx, int first_token) {
    const int tokens = job_.shape.tokens;
    float exponents[kFours], of_weights[kFours], deltas[kFours], kept_sums[kFours] = {};
    Sums sums[kRowTiles][kFours] = {};
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      const int head = own_head(four);
      exponents[four] = head < kHeads ? own_.of_exponents[head] : -INFINITY;
      of_weights[four] = head < kHeads ? own_.of_weights[head] : 0.0f;
      deltas[four] = head < kHeads ? own_.deltas[head] : 0.0f;
    }
#pragma unroll 1
    for (int number = 0; number < Base::kTilesOfWarp && token_of(number) < tokens; ++number) {
      const int first = token_of(number);
      uint32_t pairs[kFours][2];
      Sums products[2][kFours] = {};
      this->times_columns_of_heads(products, x(), first, own_.vectors);
#pragma unroll
      for (int four = 0; four < kFours; ++four) {
#pragma unroll
        for (int lower = 0; lower < 2; ++lower) {
          const auto product = [&](int column) {
            return products[0][four].value[2 * lower + column] + products[1][four].value[2 * lower + column];
          };
          const int token = first + lane_.row + 8 * lower;
          const bool is_read = token >= first_token && token < tokens;
          const float weight = exp2_of(fmaf(product(1), kLog2E, exponents[four]));
          const float factor = this->template keeps<Dropout>(number, four, token)
                                   ? (Dropout ? job_.keep.attention_scale : 1.0f)
                                   : 0.0f;
          const float da = product(0) + of_weights[four];
          const float a = is_read ? factor * weight : 0.0f;
          const float ds = is_read ? weight * fmaf(factor, da, -deltas[four]) : 0.0f;
          kept_sums[four] += a;
          pairs[four][lower] = packed(a, ds);
          if (token == tokens - 1) own_.last_weights[own_head(four)] = {a, ds};
        }
      }
      this->add_tokens(sums, x(), first, pairs);
      store_dx(dx, first, pairs);
    }
    barrier();
    this->put_sums(sums, own_.sums_of_warps);
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      const float kept = this->sum_of_tokens(kept_sums[four]);
      if (lane_.row == 0) own_.kept_of_warps[warp_][own_head(four)] = kept;
    }
  }

  /// Writes dx of 16 tokens, as far as they exist and are not the last one.
  __device__ void store_dx(Bf16* dx, int first, const uint32_t (&pairs)[kFours][2]) const {
    const int lane = thread_ % kWarp;
#pragma unroll
    for (int columns = 0; columns < Width; columns += 32) {
      Sums sums[4] = {};
#pragma unroll
      for (int four = 0; four < kFours; ++four) {
        RightFragments right;  // sums over heads, for columns in the order of chunk_column()
        load_matrices(right.part,
                      shared_address(own_.vectors[0][four][columns + chunk_column(lane / 8, lane % 8)]));
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) multiply_add_8(sums[tile], pairs[four], right.part[tile]);
      }
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int token = first + lane_.row + 8 * lower;
        if (token < job_.shape.tokens - 1) {
          store_chunks<32>(sums, lower, 1.0f, dx + token * Width + columns);
        }
      }
    }
  }

  /// Adds up the warps' sums over tokens: d and Σ a x.
  __device__ void add_warps() {
    const auto set = [&](int head, int column, float weighted, float d) {
      this->set_split(own_.d, head, column, d);
      if (head >= kHeads) return;
      memory_.factors.d(head)[column][group_] = __float2bfloat16(d);
      memory_.factors.weighted(head)[column][group_] = __float2bfloat16(weighted);
    };
#pragma unroll 1
    for (int i = thread_; i < 2 * kFours * Width; i += kGroupThreads) {
      const int half = i % 2, column = i / 2 % Width, four = i / 2 / Width;
      float4 sum = {};
#pragma unroll
      for (int warp = 0; warp < kGroupWarps; ++warp) {
        const float4 own =
            *reinterpret_cast<const float4*>(own_.sums_of_warps[warp][four][column] + 4 * half);
        sum.x += own.x, sum.y += own.y, sum.z += own.z, sum.w += own.w;
      }
      set(4 * four + 2 * half, column, sum.x, sum.y);
      set(4 * four + 2 * half + 1, column, sum.z, sum.w);
    }
    if (thread_ < kHeads) {
      float kept = 0;
#pragma unroll
      for (int warp = 0; warp < kGroupWarps; ++warp) kept += own_.kept_of_warps[warp][thread_];
      memory_.factors.kept[group_][thread_] = kept;
    }
  }

  /// dx of the last token. A lane adds the terms of its heads.
  __device__ void of_last_token(Bf16* dx) const {
    for_row_tile([&](int first) {
      const Sums sums = times_columns(weights_.of(0), first, [&](int row) { return own_.dq.right(row); });
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int column = first + lane_.row + 8 * lower;
        float sum = sums.value[2 * lower] + sums.value[2 * lower + 1];
#pragma unroll
        for (int four = 0; four < kFours; ++four) {
          const float2 weights = own_.last_weights[own_head(four)];
#pragma unroll
          for (int part = 0; part < 2; ++part) {
            const float2 vectors =
                unpacked(*reinterpret_cast<const uint32_t*>(own_.vectors[part][four][column] + lane_.column));
            sum = fmaf(weights.x, vectors.x, fmaf(weights.y, vectors.y, sum));
          }
        }
        sum = quad_sum(sum) + own_.du[column];
        if (lane_.column == 0) dx[column] = __float2bfloat16(sum);
      }
    });
  }

  __device__ void write_sums() {
    constexpr auto kPlaces = AttentionGradients::of(Width);
    float* part = job_.parts + int64_t{blockIdx.x} * kPlaces.total;
#pragma unroll 1
    for (int i = kPlaces.in_proj_bias + threadIdx.x; i < kPlaces.out_proj_weight; i += kBlockThreads)
      part[i] = 0;
#pragma unroll 1
    for (int i = kPlaces.out_proj_bias + threadIdx.x; i < kPlaces.total; i += kBlockThreads) part[i] = 0;
    if (warp_ == 0) norm_.put(memory_.norm_sums[group_]);
    __syncthreads();
    products_.write(part);
    if (threadIdx.x < 2 * Width) {
      const int kind = threadIdx.x / Width, column = threadIdx.x % Width;
      float sum = 0;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) sum += memory_.norm_sums[group][kind][column];
      part[(kind == 0 ? kPlaces.norm1_weight : kPlaces.norm1_bias) + column] = sum;
    }
  }

  const Job& job_;
  BackwardMemory<Width, HeadSize>& memory_;
  BackwardWeights<Width>& weights_;
  BackwardSequence<Width, kHeads>& own_;
  int number_;  ///< of the group's sequence
  float attention_output_, lse_;
  OuterProducts<Width, HeadSize> products_;
  NormGradient<Width> norm_;  ///< in the group's first warp
};

template <int Width, int HeadSize, bool Dropout>
__global__ void __launch_bounds__(kBlockThreads, 1)
    last_token_backward_kernel(const __grid_constant__ Job job) {
  using OwnMemory = BackwardMemory<Width, HeadSize>;
  LastToken<Width, HeadSize, Dropout>(job, *reinterpret_cast<OwnMemory*>(dynamic_shared_memory())).run();
}

template <int Width, int HeadSize>
void launch(const Job& job, cudaStream_t stream) {
  const auto kernel = job.keep.attention != nullptr ? last_token_backward_kernel<Width, HeadSize, true>
                                                    : last_token_backward_kernel<Width, HeadSize, false>;
  launch_early("last_token_backward_kernel", kernel, last_token_parts(job.shape), kBlockThreads,
               sizeof(BackwardMemory<Width, HeadSize>), stream, job);
}

}  // namespace

int last_token_parts(const BlockShape& shape) {
  return std::min((shape.sequences + kGroups - 1) / kGroups, gpu::multiprocessors());
}

void last_token_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                         const BlockActivations& activations, const Bf16* dx1, Bf16* dx, float* parts,
                         const UnaddedParts& ahead, cudaStream_t stream) {
  const Job job = {shape, weights, keep, activations, dx1, dx, parts, /*carried=*/nullptr, ahead};
  for_shape(shape, [&](auto width, auto head_size) {
    launch<decltype(width)::value, decltype(head_size)::value>(job, stream);
  });
}

}  // namespace adtrain::kernels
