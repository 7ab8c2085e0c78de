#include "model/Attention.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "model/Layers.h"
#include "model/kernels/cpu/CpuAttention.h"

namespace adtrain {
namespace {

constexpr double kRotaryBase = 10000.0;

/// In both streams the token in slot s reads slots 0 … s; a query finds itself in the last of them (see
/// `attend_by_operators`).
at::Tensor reading_mask(int64_t context, int64_t queries, const at::Tensor& like, const at::Tensor& first) {
  const auto slots = like.options().dtype(at::kLong).requires_grad(false);
  const at::Tensor key = at::arange(context, slots);
  const at::Tensor row = queries == 0 ? key : at::cat({key, key.narrow(0, context - queries, queries)});
  at::Tensor hidden = key.unsqueeze(0).gt(row.unsqueeze(1));
  if (first.defined()) {
    // A token always reads itself, or the softmax of a padding token would have nothing to share out.
    const at::Tensor others = key.unsqueeze(0).ne(row.unsqueeze(1));
    const at::Tensor padding = key.unsqueeze(0).lt(first.unsqueeze(1));
    hidden = hidden.logical_or(padding.unsqueeze(1).logical_and(others)).unsqueeze(1);
  }
  return at::zeros(hidden.sizes(), slots.dtype(at::kFloat))
      .masked_fill_(hidden, -std::numeric_limits<float>::infinity());
}

/// Where each query meets its own slot in (B, heads, R, context) scores or weights: (B, heads, queries).
at::Tensor own_slots(const at::Tensor& scores, const Streams& streams) {
  const at::Tensor rows = scores.narrow(2, scores.size(2) - streams.queries, streams.queries);
  return rows.diagonal(streams.first_query_slot(), 2, 3);
}

at::Tensor query_rows(const at::Tensor& heads, const Streams& streams) {
  return heads.narrow(2, heads.size(2) - streams.queries, streams.queries);
}

/// What the tokens in the queries' slots are replaced with: query − context token.
at::Tensor replacement(const at::Tensor& heads, const Streams& streams) {
  return query_rows(heads, streams) - heads.narrow(2, streams.first_query_slot(), streams.queries);
}

/// x (…, tokens, head size).
at::Tensor rotate(const at::Tensor& x, const Rotary& rotary) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor a = x.narrow(-1, 0, half);
  const at::Tensor b = x.narrow(-1, half, half);
  const at::Tensor turned =
      at::cat({a * rotary.cosines - b * rotary.sines, b * rotary.cosines + a * rotary.sines}, -1);
  return turned.to(x.scalar_type());
}

/// Queries (B, heads, R, head size), keys and values (B, heads, tokens, head size) -> (B, R, heads · head
/// size).
///
/// All rows are multiplied with the context alone. In the one slot of the context where a query must read
/// itself instead, which its mask leaves open, the difference between the two is then added.
at::Tensor attend_by_operators(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                               const Streams& streams, double dropout_rate) {
  const int64_t rows = queries.size(2);
  const double scale = 1.0 / std::sqrt(static_cast<double>(queries.size(3)));
  const at::Tensor q = queries * scale;
  const at::Tensor context_keys = keys.narrow(2, 0, streams.context);
  const at::Tensor context_values = values.narrow(2, 0, streams.context);

  at::Tensor scores = at::matmul(q, context_keys.transpose(2, 3));
  scores = scores + streams.mask.narrow(-2, streams.tokens() - rows, rows).to(scores.scalar_type());
  if (streams.queries > 0) {
    own_slots(scores, streams).add_((query_rows(q, streams) * replacement(keys, streams)).sum(-1));
  }
  const at::Tensor weights = dropout(at::softmax(scores, -1), dropout_rate);
  at::Tensor read = at::matmul(weights, context_values);
  if (streams.queries > 0) {
    const at::Tensor own = own_slots(weights, streams).unsqueeze(-1) * replacement(values, streams);
    read = at::cat({read.narrow(2, 0, rows - streams.queries), query_rows(read, streams) + own}, 2);
  }
  return read.transpose(1, 2).flatten(2);
}

/// By the kernels that libtorch brings along. Without padding the plain causal cases need no mask.
at::Tensor attend_on_gpu(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                         const Streams& streams, double dropout_rate) {
  const int64_t rows = queries.size(2);
  const bool plain = streams.queries == 0 && !streams.padded();
  const bool causal = plain && rows == streams.tokens() && rows > 1;
  std::optional<at::Tensor> mask;
  if (!causal && !(plain && rows == 1)) {
    mask = streams.mask_over_all_tokens.narrow(-2, streams.tokens() - rows, rows);
  }
  return at::scaled_dot_product_attention(queries, keys, values, mask, dropout_rate, causal)
      .transpose(1, 2)
      .flatten(2);
}

/// The mask over the context's slots, widened by the queries as keys: each is read by itself alone, in place
/// of the slot that it shares with a context token.
at::Tensor widen_to_queries(const at::Tensor& mask, int64_t context, int64_t queries) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  std::vector<int64_t> shape = mask.sizes().vec();
  shape.back() = queries;
  const at::Tensor wide = at::cat({mask, at::full(shape, kHidden, mask.options())}, -1);
  const at::Tensor rows_of_queries = wide.narrow(-2, context, queries);
  rows_of_queries.diagonal(context - queries, -2, -1).fill_(kHidden);
  rows_of_queries.diagonal(context, -2, -1).fill_(0);
  return wide;
}

}  // namespace

Streams Streams::one(int64_t tokens, const at::Tensor& like) {
  return two(tokens, 0, like);
}

Streams Streams::two(int64_t context, int64_t queries, const at::Tensor& like, const at::Tensor& first) {
  Streams streams = {context, queries, reading_mask(context, queries, like, first), {}, first};
  if (like.is_cuda()) {
    const at::Tensor mask = streams.mask.to(like.scalar_type());
    streams.mask_over_all_tokens = queries > 0 ? widen_to_queries(mask, context, queries) : mask;
  }
  return streams;
}

Rotary Rotary::of(const at::Tensor& positions, int64_t head_size) {
  const at::Tensor pairs = at::arange(0, head_size, 2, positions.options().dtype(at::kFloat));
  const at::Tensor angles =
      at::outer(positions.to(at::kFloat), at::pow(kRotaryBase, pairs / -static_cast<double>(head_size)));
  return {angles.cos(), angles.sin()};
}

Rotary Rotary::with_queries(const Streams& streams) const {
  if (streams.queries == 0) return *this;
  const auto of_all = [&](const at::Tensor& of_context) {
    return at::cat({of_context, of_context.narrow(0, streams.first_query_slot(), streams.queries)});
  };
  return {of_all(cosines), of_all(sines)};
}

at::Tensor attend(const at::Tensor& qkv, int64_t rows, const Streams& streams, const Rotary& rotary,
                  double dropout_rate) {
  if (kernels::cpu_attention_fits(qkv, streams)) {
    return kernels::attend_on_cpu(qkv, rows, streams, rotary, dropout_rate);
  }
  // In the order of the projection's memory, or the gradients of the three would be put together twice.
  std::vector<at::Tensor> parts = qkv.permute({1, 3, 0, 2, 4}).unbind(2);
  for (at::Tensor& part : parts) part = part.transpose(1, 2);
  for (const size_t turned : {0, 1}) {
    if (rotary.cosines.defined()) parts[turned] = rotate(parts[turned], rotary);
  }
  return attend(last_of(parts[0], 2, rows), parts[1], parts[2], streams, dropout_rate);
}

at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                  const Streams& streams, double dropout_rate) {
  const auto attend_with = queries.is_cuda() ? attend_on_gpu : attend_by_operators;
  return attend_with(queries, keys, values, streams, dropout_rate);
}

}  // namespace adtrain
