#include "collection/own/PolicyAndValue.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "collection/OrthogonalRows.h"

namespace adtrain {
namespace {

/// Of one network with two hidden layers.
int64_t parameters_of(int64_t features, int64_t units, int64_t outputs) {
  return (features + 1) * units + (units + 1) * units + (units + 1) * outputs;
}

/// `sum_of_squares` wants whole lanes.
size_t padded(int64_t count) {
  constexpr int64_t kLanesOfAdam = 8;
  return static_cast<size_t>((count + kLanesOfAdam - 1) / kLanesOfAdam * kLanesOfAdam);
}

/// A matrix (out, in) whose shorter side's vectors are orthogonal, of length `gain`, as
/// torch.nn.init.orthogonal_ makes it.
void initialise(at::Tensor weight, double gain, RandomStream& random) {
  const auto rows = static_cast<size_t>(weight.size(0)), columns = static_cast<size_t>(weight.size(1));
  const bool is_tall = rows > columns;
  const auto basis = draw_orthogonal(std::min(rows, columns), std::max(rows, columns), random);
  auto* const numbers = weight.mutable_data_ptr<float>();
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      numbers[row * columns + column] =
          static_cast<float>(gain * (is_tall ? basis[column][row] : basis[row][column]));
    }
  }
}

}  // namespace

PolicyAndValue::PolicyAndValue(const PpoSettings& settings, int64_t features, int64_t units,
                               const ActionDistribution& distribution, RandomStream& random)
    : settings_(settings),
      distribution_(distribution),
      parameters_(padded(parameters_of(features, units, distribution.policy_numbers()) +
                         distribution.deviations() + parameters_of(features, units, 1))),
      gradient_(parameters_.size()),
      adam_(parameters_.size(), settings.learning_rate) {
  constexpr double kPolicyGain = 0.01, kValueGain = 1;
  policy_ = take_network(features, units, distribution.policy_numbers(), kPolicyGain, random);
  log_deviations_ = take({distribution.deviations()});  // deviations of 1
  value_ = take_network(features, units, 1, kValueGain, random);
}

/// The next parameter: a view of the array, whose gradient autograd adds to a view of the other one.
at::Tensor PolicyAndValue::take(const std::vector<int64_t>& shape) {
  at::Tensor parameter = at::from_blob(parameters_.data() + taken_, shape, at::kFloat);
  parameter.set_requires_grad(true);
  parameter.mutable_grad() = at::from_blob(gradient_.data() + taken_, shape, at::kFloat);
  taken_ += static_cast<size_t>(parameter.numel());
  return parameter;
}

PolicyAndValue::Network PolicyAndValue::take_network(int64_t features, int64_t units, int64_t outputs,
                                                     double output_gain, RandomStream& random) {
  const std::array<int64_t, kLayers + 1> widths = {features, units, units, outputs};
  Network network;
  for (size_t i = 0; i < kLayers; ++i) {
    network[i] = {take({widths[i + 1], widths[i]}), take({widths[i + 1]})};
    initialise(network[i].weight, i + 1 < kLayers ? std::numbers::sqrt2 : output_gain, random);
  }
  return network;
}

at::Tensor PolicyAndValue::forward(const Network& network, at::Tensor features) {
  for (size_t i = 0; i < kLayers; ++i) {
    features = at::linear(features, network[i].weight, network[i].bias);
    if (i + 1 < kLayers) features = at::tanh(features);
  }
  return features;
}

PolicyAndValue::Outputs PolicyAndValue::evaluate(const at::Tensor& features) const {
  return {forward(policy_, features), forward(value_, features).squeeze(1)};
}

at::Tensor PolicyAndValue::loss(const OwnSamples& samples, const at::Tensor& minibatch) const {
  const auto chosen = [&minibatch](const at::Tensor& all) { return all.index_select(0, minibatch); };
  const Outputs outputs = evaluate(chosen(samples.features));
  at::Tensor advantages = chosen(samples.advantages);
  if (minibatch.numel() > 1) advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8);
  const at::Tensor log_probabilities =
      distribution_.log_probabilities(outputs.policy, log_deviations_, chosen(samples.actions));
  const at::Tensor ratio = (log_probabilities - chosen(samples.log_probabilities)).exp();
  const at::Tensor clipped = ratio.clamp(1 - settings_.clip_range, 1 + settings_.clip_range);
  const at::Tensor policy_loss = -at::min(advantages * ratio, advantages * clipped).mean();
  const at::Tensor value_loss = (outputs.values - chosen(samples.targets)).square().mean();
  const at::Tensor entropy = distribution_.entropies(outputs.policy, log_deviations_).mean();
  return policy_loss + settings_.value_coefficient * value_loss - settings_.entropy_coefficient * entropy;
}

void PolicyAndValue::update(const OwnSamples& samples, const at::Tensor& minibatch) {
  std::ranges::fill(gradient_, 0.0F);
  loss(samples, minibatch).backward();
  const float norm = std::sqrt(sum_of_squares(gradient_));
  const float scale = std::min(1.0F, static_cast<float>(settings_.max_grad_norm) / (norm + 1e-6F));
  adam_.step(parameters_, gradient_, scale);
}

}  // namespace adtrain
