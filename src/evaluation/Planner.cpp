#include "evaluation/Planner.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "base/Finite.h"
#include "evaluation/ActionChooser.h"

namespace adtrain {

Planner::Planner(AlgorithmDistillation& model, const EvaluationOptions& options,
                 std::span<const Trial> trials, bool captures)
    : search_(model, options),
      device_(model.parameters().device()),
      captures_(captures && device_.is_cuda()),
      trials_(trials.begin(), trials.end()),
      actions_(trials.size()) {
  for (const Trial& trial : trials) {
    streams_.emplace_back(ActionChooser::seed_of_trial(static_cast<uint64_t>(options.eval_seed), trial));
  }
}

std::span<const int32_t> Planner::choose(const Context& context, std::span<const int32_t> states) {
  const auto n = static_cast<int64_t>(trials_.size());
  const Context::Latest latest = context.latest(search_.history());
  PlannedRows rows = {latest.transitions, at::tensor(latest.lengths, at::kLong), at::empty({n, 2}, at::kInt),
                      at::empty({n, search_.draws()}, at::kFloat)};
  std::ranges::copy(states, rows.states.data_ptr<int32_t>());
  float* draw = rows.draws.data_ptr<float>();
  for (RandomStream& stream : streams_) {
    for (int64_t i = 0; i < search_.draws(); ++i) *draw++ = stream.uniform();
  }
  const BeamSearch::Plan plan = plan_of(rows);

  const at::Tensor numbers =
      at::cat({plan.logits, plan.rewards, plan.actions.unsqueeze(1).to(at::kFloat)}, 1).to(at::kCPU);
  const auto width = static_cast<size_t>(numbers.size(1));
  for (size_t i = 0; i < trials_.size(); ++i) {
    const std::span row(numbers.const_data_ptr<float>() + i * width, width);
    if (!all_finite(row)) ActionChooser::throw_non_finite(trials_[i], row.first(width - 1));
    actions_[i] = static_cast<int32_t>(row.back());
  }
  return actions_;
}

BeamSearch::Plan Planner::plan_of(const PlannedRows& rows) {
  if (!device_.is_cuda()) return search_(rows);
  if (rows_.history.empty()) {
    rows_ = rows.to(device_);
    return search_(rows_);
  }
  rows_.copy_from(rows);
  if (!captures_) return search_(rows_);
  if (!graph_) {
    graph_.emplace(device_);
    graph_->capture([this] { found_ = search_(rows_); });
  }
  graph_->replay();
  return found_;
}

}  // namespace adtrain
