#include "evaluation/SlidingContext.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

namespace adtrain {
namespace {

constexpr int64_t kColumnsOfAStep = 2;  ///< a transition and the query

}  // namespace

SlidingContext::SlidingContext(int64_t rows, int64_t n_transit, const RollingPredictors& kept,
                               std::optional<int64_t> forget_unrewarded)
    : slides_(kept && kept.slides),
      rolling_(kept ? kept.begin() : nullptr),
      window_(rows, slides_ ? kColumnsOfAStep : n_transit),
      forget_unrewarded_(forget_unrewarded),
      rows_(static_cast<size_t>(rows)) {
  TORCH_CHECK(!(slides_ && forget_unrewarded), "rows that slide are not emptied one by one");
}

at::Tensor SlidingContext::ask(const Predictor& predict, std::span<const int32_t> states) {
  std::map<int64_t, std::vector<int64_t>> rows_of_length;
  for (int64_t row = 0; row < window_.rows(); ++row) {
    const int64_t length = rows_[static_cast<size_t>(row)].length;
    window_.put_state(row, length, states);
    rows_of_length[length].push_back(row);
  }
  if (rows_of_length.size() == 1) {
    const int64_t columns = rows_of_length.begin()->first + 1;
    if (!rolling_) return predict(window_.first(columns)).actions;
    const int64_t newest = std::min(columns, kColumnsOfAStep);
    return rolling_(window_.columns(columns - newest, newest)).actions;
  }
  at::Tensor logits;
  for (const auto& [length, rows] : rows_of_length) {
    const at::Tensor places = at::tensor(rows, at::kLong);
    const at::Tensor of_rows = predict(window_.first(length + 1, places)).actions;
    if (!logits.defined()) logits = at::empty({window_.rows(), of_rows.size(1)}, of_rows.options());
    logits.index_copy_(0, places, of_rows);
  }
  return logits;
}

Context::Latest SlidingContext::latest(int64_t columns) const {
  Latest latest;
  std::vector<int64_t> ends;
  for (const Row& row : rows_) {
    ends.push_back(row.length);
    latest.lengths.push_back(std::min(row.length, columns));
  }
  latest.transitions = window_.last(columns, ends);
  return latest;
}

void SlidingContext::append(const StepOfRows& step) {
  for (int64_t row = 0; row < window_.rows(); ++row) remember(row, step);
}

void SlidingContext::remember(int64_t row, const StepOfRows& step) {
  const auto at = static_cast<size_t>(row);
  int64_t& length = rows_[at].length;
  window_.put(row, length, step);
  if (length + 1 < window_.capacity()) {
    ++length;
  } else {
    if (!slides_) rolling_ = nullptr;  // all tokens get other positions
    window_.drop_front(row, 1);
  }
  if (forget_unrewarded_)
    forget_if_unrewarded(row, step.rewards[at] != 0, !step.ended.empty() && step.ended[at] != 0);
}

void SlidingContext::forget_if_unrewarded(int64_t row, bool rewarded, bool ended) {
  Row& state = rows_[static_cast<size_t>(row)];
  if (rewarded) {
    state.steps_unrewarded = 0;
    state.episodes_unrewarded = ended ? 0 : -1;  // the episode that goes on does not count
    return;
  }
  ++state.steps_unrewarded;
  if (!ended) return;
  ++state.episodes_unrewarded;
  if (state.episodes_unrewarded < *forget_unrewarded_ || state.steps_unrewarded < state.length) return;
  window_.clear(row);
  state = Row();
  rolling_ = nullptr;  // its rows have one length
}

}  // namespace adtrain
