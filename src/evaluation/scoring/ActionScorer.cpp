#include "evaluation/scoring/ActionScorer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "model/spaces/SpaceFit.h"

namespace adtrain {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

/// Minus the logarithm of the softmax at `target`.
double cross_entropy(std::span<const float> logits, size_t target) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return std::log(sum) - (static_cast<double>(logits[target]) - largest);
}

/// How many sums of one number from each of `elements` are above `bound`.
int64_t sums_above(const std::vector<std::span<const float>>& elements, size_t from, double sum,
                   double bound) {
  if (from == elements.size()) return sum > bound ? 1 : 0;
  int64_t above = 0;
  for (const float logit : elements[from])
    above += sums_above(elements, from + 1, sum + static_cast<double>(logit), bound);
  return above;
}

}  // namespace

ActionScorer::ActionScorer(const ModelOptions& options, const ModelShape& shape, size_t group)
    : space_(shape.spaces.empty() ? Space::discrete(shape.num_actions) : shape.spaces.at(group).action),
      head_(shape.spaces.empty() ? ActionHeadKind::kCrossEntropy
                                 : pieces_for(options, shape.spaces.at(group)).action_head) {}

const char* ActionScorer::loss_name() const {
  switch (head_) {
    case ActionHeadKind::kMse:
      return "squared_error";
    case ActionHeadKind::kGaussian:
      return "negative_log_likelihood";
    default:
      return "cross_entropy";
  }
}

ActionScore ActionScorer::operator()(std::span<const float> prediction,
                                     std::span<const double> action) const {
  if (is_real()) return {kNone, loss_of_real_numbers(prediction, action), ActionScore::kNoRank};
  return of_whole_numbers(prediction, action);
}

ActionScore ActionScorer::of_whole_numbers(std::span<const float> logits,
                                           std::span<const double> action) const {
  double loss = 0, taken = 0;
  int64_t more_probable = 0;
  bool is_first = true;
  size_t begin = 0;
  for (size_t element = 0; element < action.size(); ++element) {
    const int64_t values = space_.values[element];
    const int64_t target = static_cast<int64_t>(action[element]) - space_.start[element];
    if (target < 0 || target >= values) {
      throw DataError(fmt::format("found the action {}; expected a whole number from {} to {}",
                                  action[element], space_.start[element],
                                  space_.start[element] + values - 1));
    }
    const auto of_element = logits.subspan(begin, static_cast<size_t>(values));
    const float chosen = of_element[static_cast<size_t>(target)];
    more_probable = std::ranges::count_if(of_element, [&](float logit) { return logit > chosen; });
    is_first = is_first && more_probable == 0;
    taken += static_cast<double>(chosen);
    loss += cross_entropy(of_element, static_cast<size_t>(target));
    begin += static_cast<size_t>(values);
  }
  const int64_t rank = std::isnan(loss)     ? ActionScore::kNoRank
                       : action.size() == 1 ? 1 + more_probable
                                            : joint_rank(logits, taken, is_first);
  return {static_cast<float>(std::exp(-loss)), static_cast<float>(loss), rank};
}

int64_t ActionScorer::joint_rank(std::span<const float> logits, double taken, bool is_first) const {
  if (is_first) return 1;
  int64_t joint = 1;
  std::vector<std::span<const float>> elements;
  for (const int64_t values : space_.values) {
    if (joint > kMostJointActions / values) return ActionScore::kNoRank;
    joint *= values;
    elements.push_back(logits.first(static_cast<size_t>(values)));
    logits = logits.subspan(static_cast<size_t>(values));
  }
  return 1 + sums_above(elements, 0, 0, taken);
}

float ActionScorer::loss_of_real_numbers(std::span<const float> prediction,
                                         std::span<const double> action) const {
  const bool gaussian = head_ == ActionHeadKind::kGaussian;
  double loss = 0;
  for (size_t i = 0; i < action.size(); ++i) {
    const double difference = action[i] - static_cast<double>(prediction[i]);
    if (!gaussian) {
      loss += difference * difference / static_cast<double>(action.size());
      continue;
    }
    const auto logarithm = static_cast<double>(prediction[action.size() + i]);
    const double distance = difference * std::exp(-logarithm);
    loss += 0.5 * distance * distance + logarithm + 0.5 * std::log(2 * std::numbers::pi);
  }
  return static_cast<float>(loss);
}

at::Tensor taken_actions(const Batch& rows) {
  const at::Tensor taken =
      rows.compressed() ? rows.query_action : rows.actions.select(1, rows.actions.size(1) - 1);
  return taken.reshape({rows.size(), -1}).to(at::kCPU, at::kDouble).contiguous();
}

}  // namespace adtrain
