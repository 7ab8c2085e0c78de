#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/Random.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Trial.h"

namespace adtrain {

/// Turns logits into actions, one a trial. Each trial draws from a random stream of its own, a function of
/// (seed, task, repeat), so its draws do not depend on which other trials share the batch.
class ActionChooser {
 public:
  /// Draws at `temperature` (see Categorical.h), or with kGreedy takes the most probable action.
  ActionChooser(Sampling sampling, uint64_t seed, std::span<const Trial> trials, double temperature = 1);

  /// The seed of the trial's random numbers.
  static uint64_t seed_of_trial(uint64_t seed, const Trial& trial);
  [[noreturn]] static void throw_non_finite(const Trial& trial, std::span<const float> logits);

  /// `logits`: float32 (n, A) on the CPU. The result is valid until the next call.
  /// Throws NonFiniteError where a row's logits are NaN or infinite.
  std::span<const int32_t> choose(const at::Tensor& logits);

 private:
  Sampling sampling_;
  double temperature_;
  std::vector<Trial> trials_;
  std::vector<RandomStream> streams_;
  std::vector<int32_t> actions_;
};

}  // namespace adtrain
