#include "evaluation/ActionChooser.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "base/Error.h"
#include "base/Finite.h"
#include "evaluation/Categorical.h"

namespace adtrain {

ActionChooser::ActionChooser(Sampling sampling, uint64_t seed, std::span<const Trial> trials,
                             double temperature)
    : sampling_(sampling),
      temperature_(temperature),
      trials_(trials.begin(), trials.end()),
      actions_(trials.size()) {
  for (const Trial& trial : trials) streams_.emplace_back(seed_of_trial(seed, trial));
}

uint64_t ActionChooser::seed_of_trial(uint64_t seed, const Trial& trial) {
  return seed_of(seed, trial.task, trial.repeat);
}

void ActionChooser::throw_non_finite(const Trial& trial, std::span<const float> logits) {
  throw NonFiniteError(fmt::format(
      "the model's action logits in task {} are not finite: [{:g}]; the weights are broken; evaluate an "
      "earlier checkpoint",
      trial.task, fmt::join(logits, ", ")));
}

std::span<const int32_t> ActionChooser::choose(const at::Tensor& logits) {
  const auto rows = logits.contiguous();
  const auto width = static_cast<size_t>(rows.size(1));
  for (size_t i = 0; i < trials_.size(); ++i) {
    const std::span row(rows.const_data_ptr<float>() + i * width, width);
    if (!all_finite(row)) throw_non_finite(trials_[i], row);
    actions_[i] = sampling_ == Sampling::kGreedy ? most_probable(row)
                                                 : drawn_at(row, streams_[i].uniform(), temperature_);
  }
  return actions_;
}

}  // namespace adtrain
