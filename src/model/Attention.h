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
struct Streams {
  int64_t context = 0;
  int64_t queries = 0;
  at::Tensor mask;  ///< (context + queries, context), or (B, 1, …, …): 0 where a token reads, −∞ where not

  int64_t tokens() const { return context + queries; }
  int64_t first_query_slot() const { return context - queries; }

  /// `like` gives the device. `unread`, bool (B, context), marks context tokens that no other token may read
  /// (padding).
  static Streams one(int64_t tokens, const at::Tensor& like, const at::Tensor& unread = {});
  static Streams two(int64_t context, int64_t queries, const at::Tensor& like, const at::Tensor& unread = {});
};

/// Scaled dot-product attention. Keys and values (B, heads, streams.tokens(), head size); queries the same,
/// or only those of the last R tokens. Returns (B, R, heads · head size).
at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                  const Streams& streams, double dropout_rate);

}  // namespace adtrain
