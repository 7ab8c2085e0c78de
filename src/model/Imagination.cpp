#include "model/Imagination.h"

#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "model/TransitionTokens.h"

namespace adtrain {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// int32 (…, 2) of states' numbers.
at::Tensor coordinates(const at::Tensor& states, int64_t grid_size) {
  return at::stack({at::floor_divide(states, grid_size), at::remainder(states, grid_size)}, -1).to(at::kInt);
}

}  // namespace

Imagination::Imagination(ImaginationParts parts, const ModelOptions& options, const ModelShape& shape)
    : parts_(std::move(parts)), options_(options), shape_(shape) {}

Imagination::Outlook Imagination::begin(const Batch& history, const at::Tensor& lengths,
                                        const at::Tensor& states) {
  history_ = history.actions.size(1);
  imagined_ = 0;
  own_.assign(parts_.blocks.size(), {});
  of_history_.assign(parts_.blocks.size(), {});
  missing_ = (history_ - lengths).unsqueeze(1);
  states_ = state_index(states, shape_).to(at::kLong);

  const at::Tensor all_places = slots(0, options_.n_transit + 1, lengths);
  if (parts_.rotary) rotary_ = Rotary::of(all_places, options_.head_size());
  const at::Tensor places = all_places.narrow(0, 0, history_ + 1);
  const at::Tensor there = places.unsqueeze(0).ge(missing_);  // (B, W + 1)
  const at::Tensor reader = places.unsqueeze(1), read = places.unsqueeze(0);
  // A column that is not there reads itself, so that its weights are numbers; nothing reads it.
  const at::Tensor allowed =
      read.le(reader).unsqueeze(0).logical_and(there.unsqueeze(1)).logical_or(read.eq(reader).unsqueeze(0));
  const at::Tensor scores = scores_of(allowed, parts_.slopes.defined() ? read - reader : at::Tensor());
  history_there_ = there.narrow(1, 0, history_).unsqueeze(1);
  const at::ScalarType type = parts_.pred_action.weight.scalar_type();

  const at::Tensor context = parts_.transitions(transition_features(history, shape_, type));
  const at::Tensor query = parts_.queries(states_.unsqueeze(1));
  const at::Tensor x = placed(at::cat({context, query}, 1), places);
  return through(x, /*first=*/0, [&](size_t block) { return attending_history(block, scores); });
}

Imagination::Outlook Imagination::go_on(const at::Tensor& from, const at::Tensor& actions) {
  const at::Tensor chosen = actions.unsqueeze(1);
  const auto outcome = [&](const at::Tensor& of_actions) {
    return of_actions.index_select(0, from).gather(1, chosen).squeeze(1);
  };
  const at::Tensor next_states = outcome(next_states_);
  const at::Tensor features =
      transitions_of(states_.index_select(0, from), actions, outcome(rewarded_), next_states);
  for (at::Tensor& kept : own_) {
    if (kept.defined()) kept = kept.index_select(1, from);
  }
  const int64_t courses = from.size(0) / missing_.size(0);
  states_ = next_states;

  const at::Tensor places = slots(history_ + imagined_, 2, from);
  const at::Tensor tokens = at::cat({parts_.transitions(features), parts_.queries(states_.unsqueeze(1))}, 1);
  const at::Tensor x =
      placed(tokens.view({missing_.size(0), courses * 2, -1}), places.repeat({courses})).view(tokens.sizes());
  const at::Tensor scores = scores_of_courses(places, courses);
  Outlook outlook =
      through(x, history_ + imagined_, [&](size_t block) { return attending_both(block, courses, scores); });
  ++imagined_;
  return outlook;
}

at::Tensor Imagination::slots(int64_t first, int64_t tokens, const at::Tensor& like) const {
  return at::arange(first, first + tokens, like.options().dtype(at::kLong));
}

at::Tensor Imagination::placed(const at::Tensor& tokens, const at::Tensor& slots) const {
  if (!parts_.positions.defined()) return tokens;
  const at::Tensor positions = (slots.unsqueeze(0) - missing_).clamp_min(0);  // (B, T)
  return tokens + parts_.positions.index_select(0, positions.flatten()).view(tokens.sizes());
}

at::Tensor Imagination::transitions_of(const at::Tensor& states, const at::Tensor& actions,
                                       const at::Tensor& rewarded, const at::Tensor& next_states) const {
  Batch step;
  step.states = coordinates(states, shape_.grid_size).unsqueeze(1);
  step.actions = actions.to(at::kInt).unsqueeze(1);
  step.rewards = rewarded.unsqueeze(1);
  step.next_states = coordinates(next_states, shape_.grid_size).unsqueeze(1);
  return transition_features(step, shape_, parts_.pred_action.weight.scalar_type());
}

Imagination::Outlook Imagination::through(at::Tensor x, int64_t first,
                                          const std::function<Attend(size_t block)>& attend) {
  Rotary rotary;
  if (parts_.rotary) {
    const int64_t tokens = x.size(1);
    rotary = {rotary_.cosines.narrow(0, first, tokens), rotary_.sines.narrow(0, first, tokens)};
  }
  for (size_t block = 0; block < parts_.blocks.size(); ++block)
    x = parts_.blocks[block](x, rotary, attend(block));
  at::Tensor read = x.select(1, x.size(1) - 1);
  if (parts_.behind_blocks) read = parts_.behind_blocks(read);
  const DynamicsHead::Outcomes outcomes = parts_.dynamics->of_all_actions(read);
  const at::Tensor rewards = at::softmax(outcomes.rewarded.to(at::kFloat), -1).select(-1, 1);
  rewarded_ = rewards.gt(0.5).to(at::kFloat);
  next_states_ = outcomes.next_states.argmax(-1);
  return {parts_.pred_action(read).to(at::kFloat), rewards, next_states_};
}

Attend Imagination::attending_history(size_t block, const at::Tensor& scores) {
  return [this, block, scores](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
    of_history_[block] = at::stack({key, value}).narrow(3, 0, history_);
    return at::scaled_dot_product_attention(query, key, value, scores).transpose(1, 2).flatten(2);
  };
}

Attend Imagination::attending_both(size_t block, int64_t courses, const at::Tensor& scores) {
  return [this, block, courses, scores](const at::Tensor& query, const at::Tensor& key,
                                        const at::Tensor& value) {
    const int64_t heads = query.size(1), tokens = query.size(2), size = query.size(3);
    const auto by_environment = [&](const at::Tensor& of_rows) {  // -> (…, B, heads, K · tokens, head size)
      return of_rows.unflatten(-4, {-1, courses}).transpose(-4, -3).flatten(-3, -2);
    };
    at::Tensor own = at::stack({key, value}), &kept = own_[block];
    if (kept.defined()) own = at::cat({kept, own}, 3);
    kept = own.narrow(3, 0, own.size(3) - 1);  // no later step reads the query
    const at::Tensor read = at::cat({of_history_[block], by_environment(own)}, 3);
    return at::scaled_dot_product_attention(by_environment(query), read[0], read[1], scores)
        .view({-1, heads, courses, tokens, size})
        .permute({0, 2, 3, 1, 4})
        .reshape({-1, tokens, heads * size});
  };
}

at::Tensor Imagination::scores_of(const at::Tensor& allowed, const at::Tensor& distances) const {
  constexpr int64_t kAlignment = 8;  // else libtorch's kernels copy them at each call
  const int64_t read = allowed.size(2), aligned = (read + kAlignment - 1) / kAlignment * kAlignment;
  const at::ScalarType type = parts_.pred_action.weight.scalar_type();
  const int64_t heads = parts_.slopes.defined() ? parts_.slopes.size(0) : 1;
  at::Tensor scores =
      at::zeros({allowed.size(0), heads, allowed.size(1), aligned}, allowed.options().dtype(type))
          .narrow(3, 0, read);
  if (parts_.slopes.defined()) scores.add_((parts_.slopes.view({-1, 1, 1}) * distances).to(type));
  return scores.masked_fill_(allowed.logical_not().unsqueeze(1), kNever);
}

at::Tensor Imagination::scores_of_courses(const at::Tensor& places, int64_t courses) const {
  const int64_t tokens = places.size(0), own = imagined_ + tokens;
  const at::Tensor course = slots(0, courses, places);
  const at::Tensor reader = places.repeat({courses}).unsqueeze(1),
                   of_reader = course.repeat_interleave(tokens).unsqueeze(1);
  const at::Tensor read = slots(history_, own, places).repeat({courses}).unsqueeze(0),
                   of_read = course.repeat_interleave(own).unsqueeze(0);
  const at::Tensor of_own = read.le(reader).logical_and(of_read.eq(of_reader)).unsqueeze(0);
  const int64_t environments = history_there_.size(0), readers = courses * tokens;
  const at::Tensor allowed = at::cat({history_there_.expand({environments, readers, history_}),
                                      of_own.expand({environments, readers, courses * own})},
                                     2);
  const at::Tensor distances = parts_.slopes.defined()
                                   ? at::cat({slots(0, history_, places).unsqueeze(0), read}, 1) - reader
                                   : at::Tensor();
  return scores_of(allowed, distances);
}

}  // namespace adtrain
