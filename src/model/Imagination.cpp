#include "model/Imagination.h"

#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "model/TransitionTokens.h"

namespace adtrain {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// 0 where `allowed`, else −∞.
at::Tensor scores_of(const at::Tensor& allowed, at::ScalarType type) {
  return at::zeros(allowed.sizes(), allowed.options().dtype(type))
      .masked_fill_(allowed.logical_not(), kNever);
}

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
  own_keys_.clear();
  own_values_.clear();
  history_keys_.resize(parts_.blocks.size());
  history_values_.resize(parts_.blocks.size());
  missing_ = (history_ - lengths).unsqueeze(1);
  states_ = state_index(states, shape_).to(at::kLong);

  const at::Tensor places = slots(0, history_ + 1, lengths);
  const at::Tensor there = places.unsqueeze(0).ge(missing_);  // (B, W + 1)
  const at::Tensor reader = places.unsqueeze(1), read = places.unsqueeze(0);
  // A column that is not there reads itself, so that its weights are numbers; nothing reads it.
  const at::Tensor allowed =
      read.le(reader).unsqueeze(0).logical_and(there.unsqueeze(1)).logical_or(read.eq(reader).unsqueeze(0));
  const at::ScalarType type = parts_.pred_action.weight.scalar_type();
  at::Tensor scores = scores_of(allowed.unsqueeze(1), type);  // (B, 1, W + 1, W + 1)
  if (parts_.slopes.defined())
    scores = scores + (parts_.slopes.view({1, -1, 1, 1}) * (read - reader)).to(type);
  history_scores_ = scores_of(there.narrow(1, 0, history_), type).view({lengths.size(0), 1, 1, 1, history_});

  const at::Tensor context = parts_.transitions(transition_features(history, shape_, type));
  const at::Tensor query = parts_.queries(states_.unsqueeze(1));
  const at::Tensor x = placed(at::cat({context, query}, 1), places);
  return through(x, places, [&](size_t block) { return attending_history(block, scores); });
}

Imagination::Outlook Imagination::go_on(const at::Tensor& from, const at::Tensor& actions) {
  const at::Tensor chosen = actions.unsqueeze(1);
  const auto outcome = [&](const at::Tensor& of_actions) {
    return of_actions.index_select(0, from).gather(1, chosen).squeeze(1);
  };
  const at::Tensor next_states = outcome(next_states_);
  const at::Tensor features =
      transitions_of(states_.index_select(0, from), actions, outcome(rewarded_), next_states);
  for (std::vector<at::Tensor>* const own : {&own_keys_, &own_values_}) {
    for (at::Tensor& kept : *own) kept = kept.index_select(0, from);
  }
  own_keys_.resize(parts_.blocks.size());
  own_values_.resize(parts_.blocks.size());
  const int64_t courses = from.size(0) / missing_.size(0);
  states_ = next_states;

  const at::Tensor places = slots(history_ + imagined_, 2, from);
  const at::Tensor tokens = at::cat({parts_.transitions(features), parts_.queries(states_.unsqueeze(1))}, 1);
  const at::Tensor x =
      placed(tokens.view({missing_.size(0), courses * 2, -1}), places.repeat({courses})).view(tokens.sizes());
  Outlook outlook = through(x, places, [&](size_t block) { return attending_both(block, courses); });
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

Imagination::Outlook Imagination::through(at::Tensor x, const at::Tensor& slots,
                                          const std::function<Attend(size_t block)>& attend) {
  const Rotary rotary = parts_.rotary ? Rotary::of(slots, options_.head_size()) : Rotary();
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
    history_keys_[block] = key.narrow(2, 0, history_);
    history_values_[block] = value.narrow(2, 0, history_);
    return at::scaled_dot_product_attention(query, key, value, scores).transpose(1, 2).flatten(2);
  };
}

Attend Imagination::attending_both(size_t block, int64_t courses) {
  return [this, block, courses](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
    const int64_t rows = query.size(0), heads = query.size(1), tokens = query.size(2), size = query.size(3);
    const int64_t environments = rows / courses;
    at::Tensor &kept_keys = own_keys_[block], &kept_values = own_values_[block];
    const at::Tensor own_keys = kept_keys.defined() ? at::cat({kept_keys, key}, 2) : key;
    const at::Tensor own_values = kept_values.defined() ? at::cat({kept_values, value}, 2) : value;
    const int64_t own = own_keys.size(2);
    kept_keys = own_keys.narrow(2, 0, own - 1);  // no later step reads the query
    kept_values = own_values.narrow(2, 0, own - 1);

    // All courses of an environment read its history in one product: (B, heads, K · tokens, …).
    const auto by_environment = [&](const at::Tensor& of_rows) {
      return of_rows.view({environments, courses, heads, tokens, -1})
          .transpose(1, 2)
          .reshape({environments, heads, courses * tokens, -1});
    };
    const at::Tensor scaled = query.contiguous() * (1 / std::sqrt(static_cast<double>(size)));
    at::Tensor of_history = at::matmul(by_environment(scaled), history_keys_[block].transpose(2, 3))
                                .view({environments, heads, courses, tokens, history_});
    of_history = of_history + history_scores_;
    at::Tensor of_own = at::matmul(scaled, own_keys.transpose(2, 3));
    const at::Tensor reader = slots(own - tokens, tokens, missing_).unsqueeze(1);
    const at::Tensor read = slots(0, own, missing_).unsqueeze(0);
    of_own = of_own + scores_of(read.le(reader), of_own.scalar_type());
    if (parts_.slopes.defined()) {
      const auto penalty = [&](const at::Tensor& distances) {  // (tokens, keys) -> (heads, tokens, keys)
        return (parts_.slopes.view({-1, 1, 1}) * distances).to(of_own.scalar_type());
      };
      of_own = of_own + penalty(read - reader);
      const at::Tensor behind = slots(0, history_, missing_).unsqueeze(0) - (history_ + reader);
      of_history = of_history + penalty(behind).unsqueeze(1);
    }
    const at::Tensor weights = at::softmax(
        at::cat({of_history.transpose(1, 2).reshape({rows, heads, tokens, history_}), of_own}, -1), -1);
    const at::Tensor from_history =
        at::matmul(by_environment(weights.narrow(3, 0, history_).contiguous()), history_values_[block])
            .view({environments, heads, courses, tokens, size})
            .transpose(1, 2)
            .reshape({rows, heads, tokens, size});
    return (from_history + at::matmul(weights.narrow(3, history_, own), own_values))
        .transpose(1, 2)
        .flatten(2);
  };
}

}  // namespace adtrain
