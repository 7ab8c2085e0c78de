#include "model/spaces/ActionHead.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "model/spaces/SpaceFit.h"

namespace adtrain {
namespace {

int64_t outputs_of(const Space& space, ActionHeadKind kind) {
  switch (kind) {
    case ActionHeadKind::kGaussian:
      return 2 * space.size();
    case ActionHeadKind::kMse:
      return space.size();
    default:
      return std::accumulate(space.values.begin(), space.values.end(), int64_t{0});
  }
}

/// `raw` with the second half of its last axis bounded to the logarithms of standard deviations: fp32.
at::Tensor with_bounded_deviations(const at::Tensor& raw) {
  constexpr double kBound = ActionHead::kLogDeviationBound;
  const std::vector<at::Tensor> halves = raw.to(at::kFloat).chunk(2, -1);
  return at::cat({halves[0], kBound * (halves[1] / kBound).tanh()}, -1);
}

/// fp32 (B, Q, n): minus the logarithm of the probability density of `targets` (B, Q, n), without its
/// constant.
at::Tensor gaussian_losses(const at::Tensor& predictions, const at::Tensor& targets) {
  const std::vector<at::Tensor> halves = predictions.chunk(2, -1);
  const at::Tensor &mean = halves[0], &logarithm = halves[1];
  const at::Tensor distance = (targets - mean) * at::exp(-logarithm);
  return 0.5 * distance * distance + logarithm;
}

}  // namespace

ActionHead::ActionHead(ParameterFactory& factory, const ModelOptions& options, const TaskSpaces& spaces,
                       const Initialisation& initial)
    : kind_(pieces_for(options, spaces).action_head), space_(spaces.action), counted_(spaces.action) {
  const int64_t width = options.tf_n_embd, outputs = outputs_of(space_, kind_);
  if (options.block() != TransformerBlock::kVintix) {
    out_ = initial.outer_linear(factory, "pred_action", width, outputs);
    return;
  }
  constexpr int64_t kHiddenLayers = 3;
  for (int64_t layer = 1; layer <= kHiddenLayers; ++layer) {
    hidden_.push_back(
        initial.outer_linear(factory, fmt::format("pred_action.hidden_{}", layer), width, width));
  }
  out_ = initial.outer_linear(factory, "pred_action.out", width, outputs);
}

at::Tensor ActionHead::hidden(const at::Tensor& x) const {
  at::Tensor read = x;
  for (const Linear& layer : hidden_) read = at::leaky_relu(layer(read));
  return read;
}

at::Tensor ActionHead::choices(const at::Tensor& actions) const {
  return counted_(actions).reshape({actions.size(0), actions.size(1)});
}

at::Tensor ActionHead::operator()(const at::Tensor& x) const {
  const at::Tensor raw = out_(hidden(x));
  return kind_ == ActionHeadKind::kGaussian ? with_bounded_deviations(raw) : raw;
}

AlgorithmDistillation::Loss ActionHead::loss(const at::Tensor& predictions, const at::Tensor& actions,
                                             double label_smoothing, const at::Tensor& counts) const {
  if (kind_ == ActionHeadKind::kCrossEntropy)
    return cross_entropy(predictions, actions, label_smoothing, counts);
  const at::Tensor found = predictions.to(at::kFloat);
  const at::Tensor targets = actions.reshape({actions.size(0), actions.size(1), -1}).to(at::kFloat);
  AlgorithmDistillation::Loss loss;
  loss.targets = actions.size(0) * actions.size(1);
  if (counts.defined()) loss.counted = counts.sum();
  const auto sum_of = [&](const at::Tensor& losses) {
    return counts.defined() ? losses.masked_fill(counts.logical_not().unsqueeze(-1), 0).sum() : losses.sum();
  };
  if (kind_ == ActionHeadKind::kMse) {
    loss.sum = sum_of((found - targets).square()) / static_cast<double>(space_.size());
    return loss;
  }
  const double constant = 0.5 * std::log(2 * std::numbers::pi) * static_cast<double>(space_.size());
  const at::Tensor sum = sum_of(gaussian_losses(found, targets));
  loss.sum =
      counts.defined() ? sum + constant * loss.counted : sum + constant * static_cast<double>(loss.targets);
  return loss;
}

AlgorithmDistillation::Loss ActionHead::cross_entropy(const at::Tensor& predictions,
                                                      const at::Tensor& actions, double label_smoothing,
                                                      const at::Tensor& counts) const {
  constexpr int64_t kIgnored = -1;
  at::Tensor targets = counted_(actions).to(at::kLong).reshape({-1, space_.size()});
  if (counts.defined()) targets = targets.masked_fill(counts.logical_not().reshape({-1, 1}), kIgnored);
  const std::vector<at::Tensor> logits = predictions.flatten(0, 1).split_with_sizes(space_.values, -1);
  AlgorithmDistillation::Loss loss;
  loss.targets = targets.size(0);
  at::Tensor right;
  for (int64_t element = 0; element < space_.size(); ++element) {
    const at::Tensor& found = logits[static_cast<size_t>(element)];
    const at::Tensor target = targets.select(1, element);
    const at::Tensor sum = at::cross_entropy_loss(found.to(at::kFloat), target, /*weight=*/{},
                                                  at::Reduction::Sum, kIgnored, label_smoothing);
    const at::Tensor equal = found.argmax(-1).eq(target);
    loss.sum = element == 0 ? sum : loss.sum + sum;
    right = element == 0 ? equal : right.logical_and(equal);
  }
  loss.correct = right.sum();
  if (counts.defined()) loss.counted = counts.sum();
  return loss;
}

}  // namespace adtrain
