#include "collection/Divergence.h"

#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {

bool are_sound(std::span<const float> probabilities, float value) {
  constexpr float kRoundedOne = 0.5F;
  return std::accumulate(probabilities.begin(), probabilities.end(), 0.0F) > kRoundedOne &&
         std::isfinite(value);
}

void throw_diverged(const std::string& task, int64_t step, int64_t updates, const std::string& found,
                    double learning_rate) {
  // Tasks that were finished before keep the old source_lr, so only --overwrite can begin with another.
  throw NonFiniteError(fmt::format(
      "task {}, step {}: after round {} of updates the source algorithm gives {} that are NaN or infinite; "
      "expected finite numbers, and nothing of this task is written: lower source_lr, which is {}, or scale "
      "down rewards that are large, and collect with --overwrite",
      task, step, updates, found, learning_rate));
}

}  // namespace adtrain
