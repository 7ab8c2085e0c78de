#include "model/CompressedSequence.h"

#include <ATen/ATen.h>

#include "model/TransitionTokens.h"

namespace adtrain {
namespace {

/// int64 (B, count): the positions of the query's region's transitions in a row of the batch. Where the
/// region has fewer, positions are clamped to the row: these are padding.
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
  const int64_t region = batch.states.size(1) / 2, length = batch.states.size(1) + 4;  // slots
  const at::Tensor previous = batch.previous.to(at::kLong).unsqueeze(1);
  const at::Tensor current = batch.current.to(at::kLong).unsqueeze(1);

  // With kAll the query's region begins in the same slot in every row; with kLast it ends in the same one.
  const at::Tensor slot = at::arange(length, previous.options()).unsqueeze(0);
  const at::Tensor shift = all ? at::zeros_like(current) : region - current;
  const at::Tensor place = (slot - shift).narrow(1, 0, all ? length : length - 1);
  const int64_t end = region + 1, start = region + 2, behind_start = region + 3;
  const at::Tensor first_place = at::where(previous.eq(0), start, region - previous);

  const at::Tensor is_start = place.eq(start).logical_or(place.eq(first_place)), is_end = place.eq(end);
  const at::Tensor is_transition = is_start.logical_or(is_end).logical_not();
  const at::Tensor step =
      place - behind_start + previous + at::where(place.lt(end), 2, 0);  // markers between
  const at::Tensor features =
      take_steps(transition_features(batch, shape, type), step.clamp(0, batch.states.size(1) - 1));
  const at::Tensor types = at::stack({is_transition, is_start, is_end}, -1);  // in the order of TokenType

  CompressedSequence sequence;
  sequence.context = at::cat({features * is_transition.unsqueeze(-1), types.to(type)}, -1);
  const at::Tensor query = batch.query_state.unsqueeze(1);
  const at::Tensor states =
      all ? at::cat({take_steps(batch.states, current_steps(batch, region)), query}, 1) : query;
  sequence.queries = state_index(states, shape);

  const int64_t queries = all ? region + 1 : 0;
  const at::Tensor first = first_place + shift;
  const at::Tensor of_slots = (slot - first).clamp_min(0);
  sequence.positions = all ? at::cat({of_slots, of_slots.narrow(1, length - queries, queries)}, 1) : of_slots;
  sequence.streams = {.context = length, .queries = queries, .first = first.squeeze(1).to(at::kInt)};
  return sequence;
}

at::Tensor compressed_targets(const Batch& batch, LossPositions positions) {
  const at::Tensor last = batch.query_action.to(at::kLong).unsqueeze(1);
  if (positions == LossPositions::kLast) return last;
  const at::Tensor steps = current_steps(batch, batch.states.size(1) / 2);
  return at::cat({batch.actions.to(at::kLong).gather(1, steps), last}, 1);
}

}  // namespace adtrain
