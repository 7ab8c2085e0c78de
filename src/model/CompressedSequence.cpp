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
                                          LossPositions positions) {
  const bool all = positions == LossPositions::kAll;
  const int64_t region = batch.states.size(1) / 2;
  const at::Tensor features = transition_features(batch, shape);
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
  const at::Tensor has_previous = previous.gt(0);
  const at::Tensor start = at::where(has_previous, previous + 2, 0);  // the tokens of the region before
  const at::Tensor behind_start = start + 1 + offsets;  // as if every slot of this region were used
  const at::Tensor query_positions = all ? behind_start : start + 1 + current;
  sequence.positions = at::cat({offsets.expand({batch.size(), -1}), previous + 1, start,
                                behind_start.narrow(1, 0, steps.size(1)), query_positions},
                               1);

  const at::Tensor transitions = offsets.narrow(0, 0, region);
  const at::Tensor read = at::ones_like(has_previous);
  const at::Tensor unread_before =
      at::cat({has_previous.logical_not(), transitions.ge(previous), has_previous.logical_not()}, 1);
  const at::Tensor unread_current = all ? at::zeros_like(steps, at::kBool) : transitions.ge(current);
  if (all) {
    const at::Tensor unread = at::cat({unread_before, read.logical_not(), unread_current}, 1);
    sequence.streams = Streams::two(unread.size(1), region + 1, features, unread);
  } else {
    const at::Tensor unread =
        at::cat({unread_before, read.logical_not(), unread_current, read.logical_not()}, 1);
    sequence.streams = Streams::one(unread.size(1), features, unread);
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
