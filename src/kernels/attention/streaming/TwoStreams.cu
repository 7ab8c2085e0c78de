#include <cmath>

#include "base/Launch.cuh"
#include "kernels/attention/AlibiSlope.cuh"
#include "kernels/attention/GroupTile.cuh"
#include "kernels/attention/streaming/StreamingAttention.h"
#include "kernels/attention/streaming/StreamingTiles.cuh"
#include "kernels/attention/streaming/TwoStreams.h"
#include "kernels/primitives/Instructions.cuh"

/// A query at position p reads the p context tokens before it, and itself. The first is what a token at
/// position p − 1 of a sequence of one token less reads. So the pass of the queries is one over a single
/// stream, without the last key. With the sums of exponentials 2^lse of what it has read, and w of the own
/// key, the whole output is
///
///     (2^lse · attention_output + w · value) / (2^lse + w)
///
/// With ALiBi that pass takes each key for nearer than it is by one position, which all scores of a query but
/// the own key's are too great by: so is that one's then, which changes no weight.
///
/// The backward pass has the whole output and the whole sum, with which StreamingBackward.cu's formulas hold
/// for the keys that a pass has read; and for the own key here.
namespace adtrain::kernels {
namespace {

using namespace streaming_attention_pass;

constexpr int kThreadsOfBlock = 256;

/// How many of a sequence's computed rows are queries.
int query_rows_of(const BlockShape& shape) {
  return shape.rows < shape.queries ? shape.rows : shape.queries;
}
/// The first computed row of a query that reads some of the context. That at position 0 reads none.
int first_reader_of(const BlockShape& shape) {
  return shape.rows - query_rows_of(shape) + (query_rows_of(shape) == shape.tokens ? 1 : 0);
}

/// A pass over one stream, from the `first`-th computed row on.
MultiheadAttention pass_of(const MultiheadAttention& both, int first, int rows, int tokens) {
  const BlockShape& shape = both.shape;
  MultiheadAttention pass = both;
  pass.shape.tokens = tokens;
  pass.shape.rows = rows;
  pass.shape.queries = 0;
  pass.queries.data = both.queries.at(0, first, 0);
  if (both.keep != nullptr) pass.keep = both.keep + first;
  pass.attention_output = both.attention_output + int64_t{first} * shape.width;
  pass.lse = both.lse + first;
  pass.around = {shape.rows, shape.attention_rows().row_words(), shape.length()};
  return pass;
}

/// The passes over one stream. Where one has no rows there is none.
struct Passes {
  MultiheadAttention context, queries;

  explicit Passes(const MultiheadAttention& both)
      : context(pass_of(both, 0, both.shape.rows - query_rows_of(both.shape), both.shape.tokens)),
        queries(pass_of(both, first_reader_of(both.shape), both.shape.rows - first_reader_of(both.shape),
                        both.shape.tokens - 1)) {
    if (both.alibi.first_keys == nullptr) return;
    const int64_t heads = int64_t{both.shape.sequences} * both.shape.heads;
    queries.alibi.first_keys += heads * AlibiReach::blocks(both.shape.tokens);
  }

  bool has_context() const { return context.shape.rows > 0; }
  bool has_queries() const { return queries.shape.rows > 0; }
};

/// The work of a launch.
struct Job {
  MultiheadAttention attention;
  MultiheadAttentionGradients gradients;  ///< in the backward pass
  int query_rows, first_reader;
  bool has_context, has_queries;  ///< see Passes

  static Job of(const MultiheadAttention& attention, const Passes& passes,
                const MultiheadAttentionGradients& gradients = {}) {
    const BlockShape& shape = attention.shape;
    return {
        attention,           gradients, query_rows_of(shape), first_reader_of(shape), passes.has_context(),
        passes.has_queries()};
  }
  /// Of the first query that is computed.
  __device__ int first_token() const { return attention.shape.length() - query_rows; }
  __device__ int first_row() const { return attention.shape.rows - query_rows; }
};

/// The second gradients of keys and values, which the pass of the queries writes where the context has one,
/// too.
__host__ __device__ HeadMatrix<Bf16> keys_from_queries(const BlockShape& shape, Bf16* from_queries) {
  return {from_queries, int64_t{shape.tokens} * shape.width, shape.width, shape.width / shape.heads};
}
__host__ __device__ HeadMatrix<Bf16> values_from_queries(const BlockShape& shape, Bf16* from_queries) {
  return keys_from_queries(shape, from_queries + int64_t{shape.sequences} * shape.tokens * shape.width);
}

/// Eight features of a head in one row, which a thread works on. The threads of a head's row are neighbours.
struct Place {
  int sequence, row, head, feature;
  bool exists;

  /// Of `rows` rows a sequence.
  static __device__ Place of(const BlockShape& shape, int rows, int head_size) {
    const int chunks = shape.width / 8;
    const int64_t number = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, of_all = number / chunks;
    const int column = 8 * static_cast<int>(number % chunks);
    const bool exists = of_all < int64_t{shape.sequences} * rows;
    return {exists ? static_cast<int>(of_all / rows) : 0, exists ? static_cast<int>(of_all % rows) : 0,
            column / head_size, column % head_size, exists};
  }
  template <class Value>
  __device__ Value* at(const HeadMatrix<Value>& matrix, int of_row) const {
    return matrix.at(sequence, of_row, head) + feature;
  }
};
int blocks_for(const BlockShape& shape, int rows) {
  const int64_t threads = int64_t{shape.sequences} * rows * (shape.width / 8);
  return static_cast<int>((threads + kThreadsOfBlock - 1) / kThreadsOfBlock);
}

template <class Short>
__device__ ChunkValues loaded(const Bf16* from) {
  return ChunkValues::of<Short>(*reinterpret_cast<const uint4*>(from));
}
template <class Short>
__device__ void put(Bf16* to, const ChunkValues& values) {
  *reinterpret_cast<uint4*>(to) = values.template rounded<Short>();
}
__device__ void clear(Bf16* to) {
  *reinterpret_cast<uint4*>(to) = {0, 0, 0, 0};
}

/// A computed query and its own key, of which a thread has eight features.
template <class Short, int HeadSize>
struct OwnKey {
  ChunkValues query, key, value;
  float score;     ///< the exponent of 2
  float kept;      ///< dropout's factor
  int token, row;  ///< among all tokens, and among the rows that are computed
  int64_t place;   ///< of the row in lse
  bool reads_context;

  __device__ OwnKey(const Job& job, const Place& at)
      : token(job.first_token() + at.row), row(job.first_row() + at.row) {
    const MultiheadAttention& attention = job.attention;
    const BlockShape& shape = attention.shape;
    const int head = at.sequence * shape.heads + at.head, position = token - shape.queries;
    place = int64_t{head} * shape.rows + row;
    reads_context = job.has_queries && row >= job.first_reader;
    query = loaded<Short>(at.at(attention.queries, row));
    key = loaded<Short>(at.at(attention.keys, token));
    value = loaded<Short>(at.at(attention.values, token));
    score = head_sum<HeadSize>(query.product_with(key)) * kLog2E / root();
    if (attention.alibi.first_keys != nullptr) score += alibi_slope(at.head, shape.heads);
    kept = 1.0f;
    if (attention.keep == nullptr) return;
    const int words = shape.attention_rows().row_words();
    const uint32_t word = attention.keep[(int64_t{head} * words + position / 32) * shape.rows + row];
    kept = (word >> position % 32 & 1) != 0 ? attention.scale : 0.0f;
  }
  static __device__ float root() { return std::sqrt(static_cast<float>(HeadSize)); }
};

template <class Short, int HeadSize>
__global__ void __launch_bounds__(kThreadsOfBlock) own_keys_kernel(const __grid_constant__ Job job) {
  const MultiheadAttention& attention = job.attention;
  const Place at = Place::of(attention.shape, job.query_rows, HeadSize);
  const OwnKey<Short, HeadSize> own(job, at);
  const float others = own.reads_context ? attention.lse[own.place] : -INFINITY;
  const float greatest = fmaxf(others, own.score);
  const float lse = greatest + __log2f(exp2_of(others - greatest) + exp2_of(own.score - greatest));
  __syncwarp();  // all lanes have read the sum before one replaces it
  if (!at.exists) return;
  Bf16* const output = at.at(rows_of_heads<HeadSize>(attention.attention_output, attention.shape), own.row);
  ChunkValues sum = {};
  if (own.reads_context) {
    sum = loaded<Short>(output);
    sum.multiply_by(exp2_of(others - lse));
  }
  const float weight = own.kept * exp2_of(own.score - lse);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum.at[i] = fmaf(weight, own.value.at[i], sum.at[i]);
  put<Short>(output, sum);
  if (at.feature == 0) attention.lse[own.place] = lse;
}

/// Writes the gradients of own keys and values, and adds what they give queries.
template <class Short, int HeadSize>
__global__ void __launch_bounds__(kThreadsOfBlock) own_keys_backward_kernel(const __grid_constant__ Job job) {
  const MultiheadAttention& attention = job.attention;
  const MultiheadAttentionGradients& to = job.gradients;
  const Place at = Place::of(attention.shape, job.query_rows, HeadSize);
  const OwnKey<Short, HeadSize> own(job, at);
  const auto chunk = [&](const Bf16* rows) {
    return loaded<Short>(at.at(rows_of_heads<HeadSize>(rows, attention.shape), own.row));
  };
  ChunkValues d_value = chunk(to.attention_output), d_key = own.query, d_query = {};
  const float delta = head_sum<HeadSize>(d_value.product_with(chunk(attention.attention_output))),
              d_weight = own.kept * head_sum<HeadSize>(d_value.product_with(own.value));
  if (!at.exists) return;
  const float weight = exp2_of(own.score - attention.lse[own.place]),
              d_score = weight * (d_weight - delta) / own.root();
  Bf16* const query = at.at(to.queries, own.row);
  if (own.reads_context) d_query = loaded<Short>(query);
#pragma unroll
  for (int i = 0; i < 8; ++i) d_query.at[i] = fmaf(d_score, own.key.at[i], d_query.at[i]);
  d_key.multiply_by(d_score);
  d_value.multiply_by(own.kept * weight);
  put<Short>(query, d_query);
  put<Short>(at.at(to.keys, own.token), d_key);
  put<Short>(at.at(to.values, own.token), d_value);
}

template <class Short>
__device__ void add(Bf16* to, const Bf16* from) {
  ChunkValues sum = loaded<Short>(to);
  const ChunkValues more = loaded<Short>(from);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum.at[i] += more.at[i];
  put<Short>(to, sum);
}

/// Of the tokens that are no computed queries: adds up what both passes have written, and clears what neither
/// has.
template <class Short, int HeadSize>
__global__ void __launch_bounds__(kThreadsOfBlock)
    finish_context_backward_kernel(const __grid_constant__ Job job) {
  const BlockShape& shape = job.attention.shape;
  const MultiheadAttentionGradients& to = job.gradients;
  const Place at = Place::of(shape, job.first_token(), HeadSize);
  if (!at.exists) return;
  const int token = at.row;
  const bool by_queries = job.has_queries && token < shape.tokens - 1,
             by_context = job.has_context && token < shape.tokens;
  if (!job.has_context && token < to.rows_before) clear(at.at(to.queries, token - to.rows_before));
  if (by_queries && by_context) {
    add<Short>(at.at(to.keys, token), at.at(keys_from_queries(shape, to.from_queries), token));
    add<Short>(at.at(to.values, token), at.at(values_from_queries(shape, to.from_queries), token));
  } else if (!by_queries && !by_context) {
    clear(at.at(to.keys, token));
    clear(at.at(to.values, token));
  }
}

MultiheadAttentionGradients gradients_of_queries(const MultiheadAttentionGradients& both,
                                                 const BlockShape& shape, bool has_context) {
  const int first = first_reader_of(shape);
  MultiheadAttentionGradients gradients = both;
  gradients.attention_output += int64_t{first} * shape.width;
  gradients.queries.data = both.queries.at(0, first, 0);
  gradients.rows_before = 0;
  gradients.minus_deltas += first;
  if (has_context) {
    gradients.keys = keys_from_queries(shape, both.from_queries);
    gradients.values = values_from_queries(shape, both.from_queries);
  }
  return gradients;
}

}  // namespace

void two_stream_attention(const MultiheadAttention& attention, cudaStream_t stream) {
  const Passes passes(attention);
  if (passes.has_context()) streaming_attention(passes.context, stream);
  if (passes.has_queries()) streaming_attention(passes.queries, stream);
  const Job job = Job::of(attention, passes);
  with_kind(attention, [&](auto type, auto head_size) {
    gpu::launch("own_keys_kernel", own_keys_kernel<decltype(type), decltype(head_size)::value>,
                blocks_for(attention.shape, job.query_rows), kThreadsOfBlock, 0, stream, job);
  });
}

void two_stream_attention_backward(const MultiheadAttention& attention,
                                   const MultiheadAttentionGradients& gradients, cudaStream_t stream) {
  const Passes passes(attention);
  if (passes.has_context()) streaming_attention_backward(passes.context, gradients, stream);
  if (passes.has_queries()) {
    streaming_attention_backward(
        passes.queries, gradients_of_queries(gradients, attention.shape, passes.has_context()), stream);
  }
  const Job job = Job::of(attention, passes, gradients);
  with_kind(attention, [&](auto type, auto head_size) {
    constexpr int kSize = decltype(head_size)::value;
    gpu::launch("own_keys_backward_kernel", own_keys_backward_kernel<decltype(type), kSize>,
                blocks_for(attention.shape, job.query_rows), kThreadsOfBlock, 0, stream, job);
    gpu::launch("finish_context_backward_kernel", finish_context_backward_kernel<decltype(type), kSize>,
                blocks_for(attention.shape, attention.shape.length() - job.query_rows), kThreadsOfBlock, 0,
                stream, job);
  });
}

}  // namespace adtrain::kernels
