#include "kernels/TokenStreams.h"

#include <limits>
#include <vector>

#include <ATen/ATen.h>

namespace adtrain {
namespace {

/// Over the context's slots. In both streams the token in slot s reads slots 0 … s. A query reads itself in
/// the last of these slots (see `attend_by_operators`).
at::Tensor reading_mask(const TokenStreams& streams, const at::Tensor& like) {
  const auto slots = like.options().dtype(at::kLong).requires_grad(false);
  const at::Tensor key = at::arange(streams.context, slots);
  const at::Tensor row =
      streams.queries == 0 ? key : at::cat({key, key.narrow(0, streams.first_query_slot(), streams.queries)});
  at::Tensor hidden = key.unsqueeze(0).gt(row.unsqueeze(1));
  if (streams.padded()) {
    // A token always reads itself: the softmax of a padding token needs at least one key.
    const at::Tensor others = key.unsqueeze(0).ne(row.unsqueeze(1));
    const at::Tensor padding = key.unsqueeze(0).lt(streams.first.unsqueeze(1));
    hidden = hidden.logical_or(padding.unsqueeze(1).logical_and(others)).unsqueeze(1);
  }
  if (streams.packed()) hidden = hidden.logical_or(streams.segments.before()).unsqueeze(1);
  return at::zeros(hidden.sizes(), slots.dtype(at::kFloat))
      .masked_fill_(hidden, -std::numeric_limits<float>::infinity());
}

/// Widens the mask over the context's slots by the queries as keys. Only the query itself reads its key,
/// instead of the context token in the same slot.
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

TokenStreams TokenStreams::with_masks(const at::Tensor& like) const {
  TokenStreams streams = *this;
  streams.mask = reading_mask(streams, like);
  if (like.is_cuda()) {
    const at::Tensor same_type = streams.mask.to(like.scalar_type());
    streams.mask_over_all_tokens = queries > 0 ? widen_to_queries(same_type, context, queries) : same_type;
  }
  return streams;
}

TokenSegments TokenSegments::of(const at::Tensor& first) {
  if (!first.defined()) return {};
  // Ascending, so that what is behind a segment is the first token whose segment begins later.
  return {first, at::searchsorted(first, first, /*out_int32=*/true, /*right=*/true)};
}

at::Tensor TokenSegments::before() const {
  return at::arange(first.size(1), first.options()).view({1, 1, -1}).lt(first.unsqueeze(-1));
}

at::Tensor last_of(const at::Tensor& x, int64_t dimension, int64_t count) {
  return count == x.size(dimension) ? x : x.narrow(dimension, x.size(dimension) - count, count);
}

}  // namespace adtrain
