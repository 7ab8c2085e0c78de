#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/Random.h"
#include "environments/Space.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Trial.h"

namespace adtrain {

/// Turns what a network answers into actions of any space, one a trial, as numbers that the space has. Each
/// trial draws from a random stream of its own, as ActionChooser's do. The results are valid until the next
/// call.
class SpaceChooser {
 public:
  SpaceChooser(Space action, Sampling sampling, uint64_t seed, std::span<const Trial> trials);

  /// float64 (n, size of the space). `predicted`: float32 (n, …) on the CPU, as Predictions::actions says. Of
  /// logits the most probable value or a draw; of a box the number, or of a Gaussian its mean or a draw,
  /// which may be beyond the box. Throws NonFiniteError where a row is NaN or infinite.
  at::Tensor choose(const at::Tensor& predicted);
  /// The same of random actions (random_element).
  at::Tensor draw_uniformly();

 private:
  double chosen(std::span<const float> row, int64_t element, size_t first_logit, RandomStream& stream) const;

  Space action_;
  Sampling sampling_;
  std::vector<Trial> trials_;
  std::vector<RandomStream> streams_;
  at::Tensor actions_;  ///< float64 (n, size)
};

}  // namespace adtrain
