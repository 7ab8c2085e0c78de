#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// Which segment of a packed row each token is in. Segments lie end to end, and none reads another.
struct TokenSegments {
  /// int32 (B, tokens): the first token of its segment, and what is behind its last one. Undefined where rows
  /// are whole.
  at::Tensor first = {}, end = {};

  /// Of the first tokens; undefined: of whole rows.
  static TokenSegments of(const at::Tensor& first);
  bool defined() const { return first.defined(); }
  /// bool (B, tokens, tokens): whether the second token lies before the first one's segment.
  at::Tensor before() const;
};

/// Defines which token reads which, in a sequence of `context` tokens followed by `queries` tokens.
///
/// *One stream* (queries = 0): each token reads itself and the tokens before it.
///
/// *Two streams*, as in the two-stream attention of XLNet (Yang et al., 2019, arXiv:1906.08237), train every
/// prefix in one pass. Query j takes the position of context token context − queries + j. It reads itself and
/// the context tokens before that position. No token reads another token's query, so the keys and values of
/// the context are computed once for all queries. The output of query j equals that of the last token of the
/// one-stream pass on its prefix.
///
/// Rows may begin with padding, which no other token reads. Or, in one stream, they are packed.
struct TokenStreams {
  int64_t context = 0;
  int64_t queries = 0;
  /// (context + queries, context), or (B, 1, …, …): 0 where a token reads, −∞ where it does not.
  at::Tensor mask = {};
  /// On a GPU only: the same in the type of `like`, for attention that takes ALL tokens as keys, including
  /// each query's own key: (context + queries, context + queries), or (B, 1, …, …).
  at::Tensor mask_over_all_tokens = {};
  /// int32 (B): the index of each row's first token that is not padding; undefined where no row has padding.
  at::Tensor first = {};
  TokenSegments segments = {};

  int64_t tokens() const { return context + queries; }
  int64_t first_query_slot() const { return context - queries; }
  bool padded() const { return first.defined(); }
  bool packed() const { return segments.defined(); }

  /// The same with its masks, which our own kernels do not read. `like` gives the device and the type.
  TokenStreams with_masks(const at::Tensor& like) const;
};

/// Returns the last `count` entries along `dimension` as a view. Returns x itself where those are all
/// entries, because a view of everything would cost a copy in the backward pass.
at::Tensor last_of(const at::Tensor& x, int64_t dimension, int64_t count);

}  // namespace adtrain
