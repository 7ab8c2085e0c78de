#include "evaluation/NormalizedScores.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

namespace adtrain {
namespace {

constexpr int64_t kLastEpisodes = 10;

/// `scores`: float64 (tasks, repeats, episodes).
NormalizedScores::Curve curve_of(const at::Tensor& scores) {
  const auto interquartile = [](const at::Tensor& numbers) {
    const at::Tensor dense = numbers.contiguous();
    return interquartile_mean(
        {dense.const_data_ptr<double>(), dense.const_data_ptr<double>() + dense.numel()});
  };
  NormalizedScores::Curve curve;
  curve.tasks = scores.size(0);
  for (int64_t episode = 0; episode < scores.size(2); ++episode) {
    curve.mean.push_back(scores.select(2, episode).mean().item<double>());
    curve.iqm.push_back(interquartile(scores.select(2, episode)));
  }
  const int64_t last = std::min(kLastEpisodes, scores.size(2));
  const at::Tensor at_the_end = scores.narrow(2, scores.size(2) - last, last).mean(2);
  curve.last10_mean = at_the_end.mean().item<double>();
  curve.last10_iqm = interquartile(at_the_end);
  return curve;
}

}  // namespace

double interquartile_mean(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  const auto cut = static_cast<int64_t>(numbers.size() / 4);
  const double sum = std::accumulate(numbers.begin() + cut, numbers.end() - cut, 0.0);
  return sum / static_cast<double>(std::ssize(numbers) - 2 * cut);
}

std::optional<NormalizedScores> NormalizedScores::of(const InContextReturns& measured,
                                                     const std::vector<TaskScore>& scores) {
  NormalizedScores normalized;
  std::vector<at::Tensor> all;
  std::map<std::string, std::vector<at::Tensor>> by_group;
  for (size_t i = 0; i < scores.size(); ++i) {
    const TaskScore& score = scores[i];
    if (!score.is_scale()) {
      normalized.without_scores.push_back(measured.tasks[i]);
      continue;
    }
    const at::Tensor returns = measured.returns[static_cast<int64_t>(i)].to(at::kDouble);
    all.push_back((returns - *score.random) / (*score.expert - *score.random));
    by_group[score.group].push_back(all.back());
  }
  if (all.empty()) return std::nullopt;
  normalized.all = curve_of(at::stack(all));
  if (by_group.size() > 1) {
    for (const auto& [group, parts] : by_group) normalized.groups[group] = curve_of(at::stack(parts));
  }
  return normalized;
}

}  // namespace adtrain
