#include "base/Launch.cuh"
#include "kernels/attention/GroupTile.cuh"
#include "kernels/attention/streaming/BackwardPass.cuh"
#include "kernels/attention/streaming/KeyGradients.cuh"
#include "kernels/attention/streaming/QueryGradients.cuh"
#include "kernels/attention/streaming/StreamingAttention.h"
#include "kernels/attention/streaming/StreamingTiles.cuh"

/// The backward pass of attention over long sequences. For a head, with dropout's scale c and m = 1 for kept
/// weights, 0 for others:
///
///     P = exp2(log2 e / √head size · q kᵀ − lse), with ALiBi − slope · distance besides
///     dS = P (m · d_attention_output vᵀ − delta),  delta = Σ d_attention_output · attention_output / c
///     dq = c / √head size · dS k,  dk = c / √head size · dSᵀ q,  dv = c (m P)ᵀ d_attention_output
///
/// In the first kernel a thread block owns 64 queries, and their keys and values stream by: it computes the
/// deltas and dq. In the second a thread block owns 64 keys, and their queries and d_attention_output stream
/// by: it computes dk and dv. So P and dS are computed twice, two of seven products more than have to be. To
/// keep dS in memory, half of the square score matrix, took longer, and sums of dq over thread blocks that
/// come in any order would not be deterministic.
///
/// With ALiBi both read what the forward pass has read; see AlibiReach. Of packed and padded sequences
/// queries begin where the first one's segment does, keys end where the last one's does, and what belongs to
/// another segment weighs nothing.
///
/// The sums of the gradients' columns, which are a projection's bias gradient, come from both kernels, a row
/// of partial sums for each thread block.
///
/// In fp16, P and m · d_attention_output vᵀ − delta are scaled; see StreamingBackward::kShift. The lengths
/// that this takes are found by small kernels before.
///
/// Shared memory for heads of 64, up to 1 KiB before it so that tiles begin where the swizzle does. The
/// second kernel has 50 KiB:
///
///     keys, values    (64, 64), 8 KiB each: at the end dk and dv, to be stored
///     queries, d_attention_output  (2, 64, 64), 16 KiB each: streamed
///     arrivals        32 B: barriers of copies
///     lse, minus_deltas  (2, 64), fp32: of the streamed queries
///     words           (2, 2, 64), 1 KiB: dropout words of the streamed queries
///     bounds          (64), 256 B: of packed and padded sequences, where the keys' segments end
///
/// The first kernel has the same with queries and keys exchanged, and lse and minus_deltas in registers.
namespace adtrain::kernels {
namespace {

using namespace streaming_attention_pass;

constexpr int kLengthRows = 64;  ///< rows of one head per thread block

/// In fp16: a thread block finds the longest value of a head, and makes a place for the longest gradient.
template <int HeadSize>
__global__ void __launch_bounds__(kThreads) streaming_longest_values_kernel(const __grid_constant__ Job job) {
  const MultiheadAttention& attention = job.attention;
  const int heads = attention.shape.heads;
  const float longest = longest_row<__half, HeadSize>(attention.values, blockIdx.x / heads,
                                                      blockIdx.x % heads, attention.around.values);
  if (threadIdx.x != 0) return;
  job.gradients.longest_rows[blockIdx.x] = 0.0f;
  job.gradients.longest_rows[attention.shape.sequences * heads + blockIdx.x] = longest;
}

/// Makes `longest` at least `length`, from many threads. As whole numbers: NaN is the greatest, and stays.
__device__ void raise_to(float* longest, float length) {
  atomicMax(reinterpret_cast<unsigned*>(longest), __float_as_uint(length));
}

/// In fp16: finds the longest gradient of the attention output in each head.
template <int HeadSize>
__global__ void __launch_bounds__(kThreads)
    streaming_longest_gradients_kernel(const __grid_constant__ Job job) {
  constexpr int kChunks = HeadSize / 8, kAtOnce = kThreads / kChunks;
  const BlockShape& shape = job.attention.shape;
  const int row_blocks = (shape.rows + kLengthRows - 1) / kLengthRows, of_rows = blockIdx.x / shape.heads;
  const int head = blockIdx.x % shape.heads, sequence = of_rows / row_blocks;
  const int first = of_rows % row_blocks * kLengthRows + threadIdx.x / kChunks;
  const int64_t number = int64_t{sequence} * shape.heads + head;
#pragma unroll
  for (int i = 0; i < kLengthRows; i += kAtOnce) {
    const ChunkValues gradient =
        output_chunk<__half, HeadSize>(job.gradients.attention_output, job.attention, sequence,
                                       min(first + i, shape.rows - 1), head, threadIdx.x % kChunks);
    const float square = warp_max(head_sum<HeadSize>(gradient.product_with(gradient)));
    if (threadIdx.x % kWarp == 0) raise_to(job.gradients.longest_rows + number, std::sqrt(square));
  }
}

/// With ALiBi: the end of the stages of queries that read any of the thread block's keys. One of the last
/// block's queries may read less far back than those before it, and then reads some keys that weigh nothing.
__device__ int end_of_readers(const MultiheadAttention& attention, const OwnRows& own,
                              unsigned* last_reader) {
  if (threadIdx.x == 0) *last_reader = 0;
  __syncthreads();
  constexpr int kReach = AlibiReach::kReachRows;
  const int first_row = max(own.first, attention.shape.tokens - attention.shape.rows) / kReach * kReach;
  for (int row = first_row + kReach * static_cast<int>(threadIdx.x); row < attention.shape.tokens;
       row += kReach * static_cast<int>(blockDim.x)) {
    if (*first_key(attention, own, row) < own.first + kOwnRows) atomicMax(last_reader, row);
  }
  __syncthreads();
  return min(own.end, (static_cast<int>(*last_reader) + kReach) / kPassingRows);
}

template <class Short, int HeadSize, bool Dropout, bool Alibi, bool Segmented>
__global__ void __launch_bounds__(kThreads, kBlocksTogether)
    streaming_keys_backward_kernel(const __grid_constant__ Job job) {
  __shared__ OwnRows own;
  if (threadIdx.x == 0) {
    const MultiheadAttention& attention = job.attention;
    own = job.of_keys.rows<Own::kKeys>(blockIdx.x, attention.shape);
    if constexpr (Segmented) {
      const int end = SegmentBounds<Bound::kEnd>::of(attention, own, kOwnRows - 1);
      own.end = (end + kPassingRows - 1) / kPassingRows;
    }
  }
  __syncthreads();
  if constexpr (Alibi) {
    __shared__ unsigned last_reader;
    const int end = end_of_readers(job.attention, own, &last_reader);
    __syncthreads();
    if (threadIdx.x == 0) own.end = end;
    __syncthreads();
  }
  KeysBackward<Short, HeadSize, Dropout, Alibi, Segmented>(job, own, shared_memory_for_tiles()).run();
}

template <class Short, int HeadSize, bool Dropout, bool Alibi, bool Segmented>
__global__ void __launch_bounds__(kThreads, kBlocksTogether)
    streaming_queries_backward_kernel(const __grid_constant__ Job job) {
  __shared__ OwnRows own;
  if (threadIdx.x == 0) {
    const MultiheadAttention& attention = job.attention;
    own = job.of_queries.rows<Own::kQueries>(blockIdx.x, attention.shape);
    if (row_of(attention.shape, own.first) + kOwnRows <= 0) {  // no queries
      own.end = own.begin;
    } else if constexpr (Alibi || Segmented) {
      int begin = 0;
      if constexpr (Alibi) begin = *first_key(attention, own, own.first);
      if constexpr (Segmented) begin = max(begin, SegmentBounds<Bound::kFirst>::of(attention, own, 0));
      own.begin = begin / kPassingRows;
    }
  }
  __syncthreads();
  QueriesBackward<Short, HeadSize, Dropout, Alibi, Segmented>(job, own, shared_memory_for_tiles()).run();
}

template <int HeadSize>
void find_longest_rows(const Job& job, cudaStream_t stream) {
  const BlockShape& shape = job.attention.shape;
  const int row_blocks = (shape.rows + kLengthRows - 1) / kLengthRows;
  gpu::launch("streaming_longest_values_kernel", streaming_longest_values_kernel<HeadSize>,
              shape.sequences * shape.heads, kThreads, 0, stream, job);
  gpu::launch("streaming_longest_gradients_kernel", streaming_longest_gradients_kernel<HeadSize>,
              shape.sequences * row_blocks * shape.heads, kThreads, 0, stream, job);
}

template <class Short, int HeadSize>
void launch(const MultiheadAttention& attention, const MultiheadAttentionGradients& gradients,
            cudaStream_t stream) {
  const BlockShape& shape = attention.shape;
  const int first_query = shape.tokens - shape.rows - gradients.rows_before;
  const MultiheadAttention own = with_rows_around(attention);
  const Job job = {
      own,
      gradients,
      BlockOrder::of(shape, first_query),
      BlockOrder::of(shape, 0),
      map_of<HeadSize>(attention.queries, shape, shape.rows),
      map_of<HeadSize>(output_rows<HeadSize>(gradients.attention_output, own), shape, shape.rows),
      map_of<HeadSize>(attention.keys, shape, shape.tokens),
      map_of<HeadSize>(attention.values, shape, shape.tokens)};
  if constexpr (std::is_same_v<Short, __half>) find_longest_rows<HeadSize>(job, stream);
  with_flags(job.attention, [&](auto dropout, auto alibi, auto segmented) {
    constexpr bool kDropout = decltype(dropout)::kValue, kAlibi = decltype(alibi)::kValue,
                   kSegmented = decltype(segmented)::kValue;
    gpu::launch("streaming_queries_backward_kernel",
                streaming_queries_backward_kernel<Short, HeadSize, kDropout, kAlibi, kSegmented>,
                job.of_queries.blocks(), kThreads,
                QueriesBackward<Short, HeadSize, kDropout, kAlibi, kSegmented>::kBytes, stream, job);
    gpu::launch("streaming_keys_backward_kernel",
                streaming_keys_backward_kernel<Short, HeadSize, kDropout, kAlibi, kSegmented>,
                job.of_keys.blocks(), kThreads,
                KeysBackward<Short, HeadSize, kDropout, kAlibi, kSegmented>::kBytes, stream, job);
  });
}

}  // namespace

void streaming_attention_backward(const MultiheadAttention& attention,
                                  const MultiheadAttentionGradients& gradients, cudaStream_t stream) {
  with_kind(attention, [&](auto type, auto head_size) {
    launch<decltype(type), decltype(head_size)::value>(attention, gradients, stream);
  });
}

}  // namespace adtrain::kernels
