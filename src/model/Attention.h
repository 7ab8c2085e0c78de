#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// Which token reads which, in a sequence of `context` tokens with `queries` tokens behind them.
///
/// *One stream* (queries = 0): each token reads itself and the tokens before it.
///
/// *Two streams* train every prefix in one pass: query j stands where context token context − queries + j
/// stands, and reads the context tokens before that one and itself. No token reads another's query, so keys
/// and values of the context are computed once for all queries, and query j comes out as the last token of
/// the one-stream pass on its prefix.
///
/// Rows may begin with padding, which no other token reads.
struct Streams {
  int64_t context = 0;
  int64_t queries = 0;
  /// (context + queries, context), or (B, 1, …, …): 0 where a token reads, −∞ where not.
  at::Tensor mask = {};
  /// On a GPU, the same in the type of `like` for attention over ALL tokens as keys, each query's own among
  /// them: (context + queries, context + queries), or (B, 1, …, …).
  at::Tensor mask_over_all_tokens = {};
  /// int32 (B): the first token of each row that is no padding; undefined where none has any.
  at::Tensor first = {};

  int64_t tokens() const { return context + queries; }
  int64_t first_query_slot() const { return context - queries; }
  bool padded() const { return first.defined(); }

  /// With masks, which our own kernels do not read. `like` gives device and type.
  static Streams one(int64_t tokens, const at::Tensor& like);
  static Streams two(int64_t context, int64_t queries, const at::Tensor& like, const at::Tensor& first = {});
};

/// Rotary positions: a pair of features i and i + head size / 2 turns by position · base^(−2i / head size).
struct Rotary {
  at::Tensor cosines;  ///< fp32 (tokens, head size / 2); undefined for no rotary positions
  at::Tensor sines;

  /// `positions`: int64 (tokens).
  static Rotary of(const at::Tensor& positions, int64_t head_size);
  /// From that of a context to that of all tokens: queries turn as the tokens whose places they take.
  Rotary with_queries(const Streams& streams) const;
};

/// Scaled dot-product attention of the last `rows` tokens on all that they may read. qkv: queries, keys and
/// values (3, B, heads, streams.tokens(), head size), as a rule a view of a fused projection. Returns (B,
/// rows, heads · head size).
at::Tensor attend(const at::Tensor& qkv, int64_t rows, const Streams& streams, const Rotary& rotary,
                  double dropout_rate);
/// The same of what has turned already: queries (B, heads, rows, head size) of the last tokens, keys and
/// values (B, heads, streams.tokens(), head size).
at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                  const Streams& streams, double dropout_rate);

}  // namespace adtrain
