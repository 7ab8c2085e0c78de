#include "evaluation/spaces/SpaceChooser.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "base/Finite.h"
#include "environments/RandomAction.h"
#include "evaluation/ActionChooser.h"
#include "evaluation/Categorical.h"

namespace adtrain {

SpaceChooser::SpaceChooser(Space action, Sampling sampling, uint64_t seed, std::span<const Trial> trials)
    : action_(std::move(action)),
      sampling_(sampling),
      trials_(trials.begin(), trials.end()),
      actions_(at::zeros({static_cast<int64_t>(trials.size()), action_.size()}, at::kDouble)) {
  for (const Trial& trial : trials) streams_.emplace_back(ActionChooser::seed_of_trial(seed, trial));
}

at::Tensor SpaceChooser::choose(const at::Tensor& predicted) {
  const at::Tensor rows = predicted.contiguous();
  const auto width = static_cast<size_t>(rows.size(1));
  double* action = actions_.mutable_data_ptr<double>();
  for (size_t i = 0; i < trials_.size(); ++i) {
    const std::span row(rows.const_data_ptr<float>() + i * width, width);
    if (!all_finite(row)) ActionChooser::throw_non_finite(trials_[i], row);
    size_t first_logit = 0;
    for (int64_t element = 0; element < action_.size(); ++element) {
      *action++ = chosen(row, element, first_logit, streams_[i]);
      if (!action_.values.empty())
        first_logit += static_cast<size_t>(action_.values[static_cast<size_t>(element)]);
    }
  }
  return actions_;
}

double SpaceChooser::chosen(std::span<const float> row, int64_t element, size_t first_logit,
                            RandomStream& stream) const {
  const auto at = static_cast<size_t>(element);
  if (action_.kind == Space::Kind::kBox) {
    const bool is_gaussian = row.size() > static_cast<size_t>(action_.size());
    const double mean = row[at];
    if (!is_gaussian || sampling_ == Sampling::kGreedy) return mean;
    return mean +
           std::exp(static_cast<double>(row[static_cast<size_t>(action_.size()) + at])) * stream.normal();
  }
  const std::span logits = row.subspan(first_logit, static_cast<size_t>(action_.values[at]));
  const int32_t value =
      sampling_ == Sampling::kGreedy ? most_probable(logits) : drawn_at(logits, stream.uniform());
  return static_cast<double>(action_.start[at] + value);
}

at::Tensor SpaceChooser::draw_uniformly() {
  double* action = actions_.mutable_data_ptr<double>();
  for (RandomStream& stream : streams_) {
    for (size_t element = 0; element < static_cast<size_t>(action_.size()); ++element)
      *action++ = random_element(action_, element, stream);
  }
  return actions_;
}

}  // namespace adtrain
