#include "evaluation/Categorical.h"

#include <algorithm>
#include <cmath>

namespace adtrain {

int32_t most_probable(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

int32_t drawn_at(std::span<const float> logits, double uniform, double temperature) {
  const double highest = std::ranges::max(logits);
  const auto weight = [&](float logit) { return std::exp((logit - highest) / temperature); };
  double total = 0;
  for (const float logit : logits) total += weight(logit);
  double below = 0;
  for (size_t action = 0; action + 1 < logits.size(); ++action) {
    below += weight(logits[action]);
    if (uniform * total < below) return static_cast<int32_t>(action);
  }
  return static_cast<int32_t>(logits.size() - 1);
}

}  // namespace adtrain
