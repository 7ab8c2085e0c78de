#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ATen/ATen.h>

#include "base/Random.h"
#include "environments/Space.h"

namespace adtrain {

/// The distribution over a space's actions that a policy's numbers stand for: categorical for Discrete, one
/// such a element for MultiDiscrete, and for Box a normal one an element, independent of each other, whose
/// deviations do not depend on the observation. As Stable-Baselines3 has them. A value.
///
/// Actions are (n, size()) float32: of whole numbers their places, from 0 on; real ones as they were drawn,
/// which may be outside of the box.
class ActionDistribution {
 public:
  /// Throws ConfigError where it is a box of whole numbers or of float16.
  explicit ActionDistribution(Space space);

  /// Numbers of one action.
  int64_t size() const { return space_.size(); }
  /// The policy's numbers for one observation: logits of all values of all elements one behind the other, or
  /// means.
  int64_t policy_numbers() const;
  /// Of log-deviations, which are parameters beside the network: size() for a box, else 0.
  int64_t deviations() const { return space_.kind == Space::Kind::kBox ? size() : 0; }

  /// `policy` is (n, policy_numbers()) float32 of the CPU, `log_deviations` (deviations()).
  void draw(const at::Tensor& policy, const at::Tensor& log_deviations, RandomStream& random,
            std::span<float> actions) const;
  /// (n), differentiable: log-probabilities, or log-densities of what was drawn.
  at::Tensor log_probabilities(const at::Tensor& policy, const at::Tensor& log_deviations,
                               const at::Tensor& actions) const;
  /// (n), differentiable.
  at::Tensor entropies(const at::Tensor& policy, const at::Tensor& log_deviations) const;

  /// Actions as rows of the space's own type. Real ones are not clipped here.
  void write(std::span<const float> actions, std::span<std::byte> rows) const;

 private:
  Space space_;
};

}  // namespace adtrain
