#include "collection/own/ActionDistribution.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "environments/worker/TypedNumbers.h"

namespace adtrain {
namespace {

/// Calls `use` with each element's number and its log-probabilities (n, values).
template <class Use>
void for_each_element(const std::vector<int64_t>& values, const at::Tensor& logits, Use use) {
  int64_t begin = 0;
  for (size_t element = 0; element < values.size(); ++element) {
    use(static_cast<int64_t>(element), at::log_softmax(logits.narrow(1, begin, values[element]), 1));
    begin += values[element];
  }
}

int64_t draw_one(const float* log_probabilities, int64_t values, RandomStream& random) {
  float left = random.uniform();
  int64_t value = 0;
  while (value + 1 < values) {
    const float probability = std::exp(log_probabilities[value]);
    if (left < probability) break;
    left -= probability;
    ++value;
  }
  return value;
}

}  // namespace

ActionDistribution::ActionDistribution(Space space) : space_(std::move(space)) {
  const bool is_box = space_.kind == Space::Kind::kBox;
  if (!is_box || space_.type == ElementType::kFloat32 || space_.type == ElementType::kFloat64) return;
  throw ConfigError(fmt::format(
      "env_worker: found actions of {}; expected Discrete, MultiDiscrete, or a Box of float32 or float64, "
      "whose actions PPO draws from a normal distribution; change the environments' action_space",
      space_.text()));
}

int64_t ActionDistribution::policy_numbers() const {
  if (space_.kind == Space::Kind::kBox) return size();
  return std::accumulate(space_.values.begin(), space_.values.end(), int64_t{0});
}

void ActionDistribution::draw(const at::Tensor& policy, const at::Tensor& log_deviations,
                              RandomStream& random, std::span<float> actions) const {
  const int64_t rows = policy.size(0), width = size();
  if (space_.kind == Space::Kind::kBox) {
    const at::Tensor deviations = log_deviations.exp(), means = policy.contiguous();
    const float* const mean = means.const_data_ptr<float>();
    const float* const deviation = deviations.const_data_ptr<float>();
    for (int64_t i = 0; i < rows * width; ++i)
      actions[static_cast<size_t>(i)] = mean[i] + deviation[i % width] * static_cast<float>(random.normal());
    return;
  }
  for_each_element(space_.values, policy, [&](int64_t element, const at::Tensor& log_probabilities) {
    const int64_t values = log_probabilities.size(1);
    const float* const first = log_probabilities.const_data_ptr<float>();
    for (int64_t row = 0; row < rows; ++row) {
      actions[static_cast<size_t>(row * width + element)] =
          static_cast<float>(draw_one(first + row * values, values, random));
    }
  });
}

at::Tensor ActionDistribution::log_probabilities(const at::Tensor& policy, const at::Tensor& log_deviations,
                                                 const at::Tensor& actions) const {
  if (space_.kind == Space::Kind::kBox) {
    constexpr double kLogOfNormal = 0.91893853320467274178;  // ln √(2π)
    const at::Tensor distance = (actions - policy) * (-log_deviations).exp();
    return (distance.square() * -0.5 - log_deviations - kLogOfNormal).sum(1);
  }
  at::Tensor total = at::zeros({policy.size(0)}, policy.options());
  for_each_element(space_.values, policy, [&](int64_t element, const at::Tensor& log_probabilities) {
    const at::Tensor chosen = actions.narrow(1, element, 1).to(at::kLong);
    total = total + log_probabilities.gather(1, chosen).squeeze(1);
  });
  return total;
}

at::Tensor ActionDistribution::entropies(const at::Tensor& policy, const at::Tensor& log_deviations) const {
  if (space_.kind == Space::Kind::kBox) {
    constexpr double kEntropyOfNormal = 1.41893853320467274178;  // ½ + ln √(2π)
    return (log_deviations + kEntropyOfNormal).sum().expand({policy.size(0)});
  }
  at::Tensor total = at::zeros({policy.size(0)}, policy.options());
  for_each_element(space_.values, policy, [&](int64_t, const at::Tensor& log_probabilities) {
    total = total - (log_probabilities.exp() * log_probabilities).sum(1);
  });
  return total;
}

void ActionDistribution::write(std::span<const float> actions, std::span<std::byte> rows) const {
  const auto width = static_cast<size_t>(size());
  const bool is_box = space_.kind == Space::Kind::kBox;
  with_type(space_.type, [&]<class Number>(Number*) {
    if constexpr (!std::is_same_v<Number, Half>) {
      for (size_t i = 0; i < actions.size(); ++i) {
        const auto number =
            is_box ? static_cast<Number>(actions[i])
                   : static_cast<Number>(space_.start[i % width] + static_cast<int64_t>(actions[i]));
        std::memcpy(rows.data() + i * sizeof number, &number, sizeof number);
      }
    }
  });
}

}  // namespace adtrain
