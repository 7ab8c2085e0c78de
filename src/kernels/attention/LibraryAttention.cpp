#include "kernels/attention/LibraryAttention.h"

#include <cmath>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "kernels/dropout/Dropout.h"

namespace adtrain::kernels {
namespace {

/// The scores or weights (B, heads, R, context) of each query in its own slot: (B, heads, queries).
at::Tensor own_slots(const at::Tensor& scores, const TokenStreams& streams) {
  const at::Tensor rows = scores.narrow(2, scores.size(2) - streams.queries, streams.queries);
  return rows.diagonal(streams.first_query_slot(), 2, 3);
}

at::Tensor query_rows(const at::Tensor& heads, const TokenStreams& streams) {
  return heads.narrow(2, heads.size(2) - streams.queries, streams.queries);
}

/// The difference query − context token for the slots of the queries.
at::Tensor replacement(const at::Tensor& heads, const TokenStreams& streams) {
  return query_rows(heads, streams) - heads.narrow(2, streams.first_query_slot(), streams.queries);
}

/// Queries (B, heads, R, head size), keys and values (B, heads, tokens, head size) -> (B, R, heads · head
/// size).
///
/// All rows are first multiplied with the context alone. A query must read itself instead of the context
/// token in its slot, which its mask leaves open. So the difference between the two is added afterwards.
at::Tensor attend_by_operators(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                               const TokenStreams& streams, double dropout_rate) {
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
  at::Tensor attention_output = at::matmul(weights, context_values);
  if (streams.queries > 0) {
    const at::Tensor own = own_slots(weights, streams).unsqueeze(-1) * replacement(values, streams);
    attention_output = at::cat(
        {attention_output.narrow(2, 0, rows - streams.queries), query_rows(attention_output, streams) + own},
        2);
  }
  return attention_output.transpose(1, 2).flatten(2);
}

/// Attention by libtorch's kernels. Without padding and queries, causal attention and that of the last token
/// need no mask.
at::Tensor attend_on_gpu(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                         const TokenStreams& streams, double dropout_rate) {
  const int64_t rows = queries.size(2);
  const bool plain = streams.queries == 0 && !streams.padded() && !streams.packed();
  const bool causal = plain && rows == streams.tokens() && rows > 1;
  std::optional<at::Tensor> mask;
  if (!causal && !(plain && rows == 1)) {
    mask = streams.mask_over_all_tokens.narrow(-2, streams.tokens() - rows, rows);
  }
  return at::scaled_dot_product_attention(queries, keys, values, mask, dropout_rate, causal)
      .transpose(1, 2)
      .flatten(2);
}

}  // namespace

AttentionOfChangingShapes::AttentionOfChangingShapes() : allowed_(at::globalContext().userEnabledCuDNNSDP()) {
  at::globalContext().setSDPUseCuDNN(false);
}

AttentionOfChangingShapes::~AttentionOfChangingShapes() {
  at::globalContext().setSDPUseCuDNN(allowed_);
}

at::Tensor rotated(const at::Tensor& x, const Rotary& rotary) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor a = x.narrow(-1, 0, half);
  const at::Tensor b = x.narrow(-1, half, half);
  const at::Tensor turned =
      at::cat({a * rotary.cosines - b * rotary.sines, b * rotary.cosines + a * rotary.sines}, -1);
  return turned.to(x.scalar_type());
}

at::Tensor library_attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                             const TokenStreams& streams, double dropout_rate) {
  const auto attend_with = queries.is_cuda() ? attend_on_gpu : attend_by_operators;
  return attend_with(queries, keys, values, streams, dropout_rate);
}

at::Tensor library_attention(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams,
                             const Rotary& rotary, double dropout_rate) {
  // In the order of the projection's memory. Otherwise the three gradients would be concatenated twice.
  std::vector<at::Tensor> parts = qkv.permute({1, 3, 0, 2, 4}).unbind(2);
  for (at::Tensor& part : parts) part = part.transpose(1, 2);
  for (const size_t turned : {0, 1}) {
    if (rotary.cosines.defined()) parts[turned] = rotated(parts[turned], rotary);
  }
  return library_attention(last_of(parts[0], 2, rows), parts[1], parts[2], streams, dropout_rate);
}

}  // namespace adtrain::kernels
