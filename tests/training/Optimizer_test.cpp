#include "training/Optimizer.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

/// AdamW and clipping as the papers write them, one number at a time in double precision.
class PlainAdamW {
 public:
  PlainAdamW(std::vector<double> initial, const TrainingOptions& options)
      : parameters(std::move(initial)), options_(options), m_(parameters.size()), v_(parameters.size()) {}

  double step(std::vector<double> gradient, double rate) {
    double squares = 0;
    for (const double g : gradient) squares += g * g;
    const double norm = std::sqrt(squares);
    if (options_.max_grad_norm > 0 && norm > options_.max_grad_norm) {
      for (double& g : gradient) g *= options_.max_grad_norm / norm;
    }
    ++steps_;
    for (size_t i = 0; i < gradient.size(); ++i) {
      m_[i] = options_.beta1 * m_[i] + (1 - options_.beta1) * gradient[i];
      v_[i] = options_.beta2 * v_[i] + (1 - options_.beta2) * gradient[i] * gradient[i];
      const double m_hat = m_[i] / (1 - std::pow(options_.beta1, steps_));
      const double v_hat = v_[i] / (1 - std::pow(options_.beta2, steps_));
      parameters[i] -= rate * options_.weight_decay * parameters[i];
      parameters[i] -= rate * m_hat / (std::sqrt(v_hat) + options_.adam_epsilon);
    }
    return norm;
  }

  std::vector<double> parameters;

 private:
  TrainingOptions options_;
  std::vector<double> m_, v_;
  int steps_ = 0;
};

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor doubles = tensor.to(at::kDouble).contiguous();
  return {doubles.const_data_ptr<double>(), doubles.const_data_ptr<double>() + doubles.numel()};
}

TEST(Optimizer, FollowsAdamWWithClippingOnRandomGradients) {
  TrainingOptions options;
  options.weight_decay = 0.1;
  at::Tensor parameters = at::randn({1000});
  Optimizer optimizer(parameters, options);
  PlainAdamW plain(numbers(parameters), options);
  for (int step = 0; step < 50; ++step) {
    const double rate = 1e-2 / (step + 1);
    at::Tensor gradient =
        at::randn({1000}) * (step % 2 == 0 ? 0.01 : 1.0);  // below and above the clipping norm
    const double norm = plain.step(numbers(gradient), rate);
    optimizer.set_learning_rate(rate);
    optimizer.step(gradient);
    EXPECT_NEAR(optimizer.gradient_norm().item<double>(), norm, 1e-4 * norm);
  }
  const std::vector<double> ours = numbers(parameters);
  for (size_t i = 0; i < ours.size(); ++i)
    ASSERT_NEAR(ours[i], plain.parameters[i], 1e-5) << "parameter " << i;
}

TEST(Optimizer, ContinuesFromItsSavedState) {
  const TrainingOptions options;
  at::Tensor parameters = at::randn({100}), other = parameters.clone();
  Optimizer uninterrupted(parameters, options), first(other, options);
  std::vector<at::Tensor> gradients;
  for (int step = 0; step < 10; ++step) gradients.push_back(at::randn({100}));
  uninterrupted.set_learning_rate(1e-3);
  first.set_learning_rate(1e-3);
  for (const at::Tensor& gradient : gradients) uninterrupted.step(gradient.clone());
  for (int step = 0; step < 5; ++step) first.step(gradients[static_cast<size_t>(step)].clone());
  Optimizer second(other, options);
  second.first_moment().copy_(first.first_moment());
  second.second_moment().copy_(first.second_moment());
  second.step_count().copy_(first.step_count());
  second.set_learning_rate(1e-3);
  for (int step = 5; step < 10; ++step) second.step(gradients[static_cast<size_t>(step)].clone());
  EXPECT_TRUE(parameters.equal(other));
}

}  // namespace
}  // namespace adtrain
