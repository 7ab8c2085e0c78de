#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// Which token reads which, in a sequence of `context` tokens with `queries` tokens after them.
///
/// *One stream* (queries = 0): each token reads itself and the tokens before it.
///
/// *Two streams*, as in the two-stream attention of XLNet (Yang et al., 2019, arXiv:1906.08237), train every
/// prefix in one pass: query j stands where context token context − queries + j
/// stands, and reads the context tokens before that one and itself. No token reads another's query, so keys
/// and values of the context are computed once for all queries, and query j comes out as the last token of
/// the one-stream pass on its prefix.
///
/// Rows may begin with padding, which no other token reads.
struct TokenStreams {
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
  static TokenStreams one(int64_t tokens, const at::Tensor& like);
  static TokenStreams two(int64_t context, int64_t queries, const at::Tensor& like,
                          const at::Tensor& first = {});
};

/// The last `count` along `dimension`: a view, or x itself where that is all of it, as a view of everything
/// would cost the gradient a copy.
at::Tensor last_of(const at::Tensor& x, int64_t dimension, int64_t count);

}  // namespace adtrain
