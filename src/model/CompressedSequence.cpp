#include "model/CompressedSequence.h"

#include <ATen/ATen.h>

#include "model/TransitionTokens.h"

namespace adtrain {
namespace {

/// int64 (B, count): where the transitions of the query's region stand in a row of the batch. Stays inside
/// the row where the region has fewer: that is padding.
at::Tensor current_steps(const Batch& batch, int64_t count) {
  const at::Tensor steps = at::arange(count, batch.previous.options().dtype(at::kLong));
  return (batch.previous.unsqueeze(1) + steps).clamp_max(batch.states.size(1) - 1);
}

at::Tensor take_steps(const at::Tensor& rows, const at::Tensor& steps) {
  return rows.gather(1, steps.unsqueeze(-1).expand({-1, -1, rows.size(2)}));
}

}  // namespace

CompressedSequence CompressedSequence::of(const Batch& batch, const ModelShape& shape,
                                          LossPositions positions, at::ScalarType type) {
  const bool all = positions == LossPositions::kAll;
  const int64_t region = batch.states.size(1) / 2;
  const at::Tensor features = transition_features(batch, shape, type);
  const at::Tensor steps = current_steps(batch, all ? region + 1 : region);
  const at::Tensor query = batch.query_state.unsqueeze(1);

  CompressedSequence sequence;
  sequence.previous = features.narrow(1, 0, region);
  sequence.current = take_steps(features, steps);
  const at::Tensor states =
      all ? at::cat({take_steps(batch.states, steps.narrow(1, 0, region)), query}, 1) : query;
  sequence.queries = state_index(states, shape);

  const at::Tensor offsets = at::arange(region + 1, steps.options());
  const at::Tensor previous = batch.previous.to(at::kLong).unsqueeze(1);
  const at::Tensor current = batch.current.to(at::kLong).unsqueeze(1);
  const at::Tensor absent = previous.eq(0);                     // no region before
  const at::Tensor start = at::where(absent, 0, previous + 2);  // tokens of the region before
  const at::Tensor behind_start = start + 1 + offsets;
  sequence.positions =
      at::cat({offsets.expand({batch.size(), -1}), previous + 1, start,
               behind_start.narrow(1, 0, steps.size(1)), all ? behind_start : start + 1 + current},
              1);

  const at::Tensor transitions = offsets.narrow(0, 0, region);
  const at::Tensor present = at::zeros_like(absent);
  const at::Tensor unread = at::cat({absent, transitions.ge(previous), absent, present}, 1);
  if (all) {
    const at::Tensor slots = at::cat({unread, present.expand({-1, region + 1})}, 1);
    sequence.streams = Streams::two(slots.size(1), region + 1, features, slots);
  } else {
    const at::Tensor slots = at::cat({unread, transitions.ge(current), present}, 1);
    sequence.streams = Streams::one(slots.size(1), features, slots);
  }
  return sequence;
}

at::Tensor compressed_targets(const Batch& batch, LossPositions positions) {
  const at::Tensor last = batch.query_action.to(at::kLong).unsqueeze(1);
  if (positions == LossPositions::kLast) return last;
  const at::Tensor steps = current_steps(batch, batch.states.size(1) / 2);
  return at::cat({batch.actions.to(at::kLong).gather(1, steps), last}, 1);
}

}  // namespace adtrain
