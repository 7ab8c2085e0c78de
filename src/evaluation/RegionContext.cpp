#include "evaluation/RegionContext.h"

#include <ATen/ATen.h>

namespace adtrain {
namespace {

Batch selected(Batch batch, const at::Tensor& rows) {
  for (at::Tensor* part : {&batch.states, &batch.actions, &batch.rewards, &batch.next_states, &batch.previous,
                           &batch.current, &batch.query_state}) {
    *part = part->index_select(0, rows);
  }
  return batch;
}

}  // namespace

RegionContext::RegionContext(int64_t rows, int64_t compress_interval)
    : regions_(rows, 2 * compress_interval),
      previous_(static_cast<size_t>(rows)),
      current_(previous_.size()) {}

at::Tensor RegionContext::ask(const Predictor& predict, std::span<const int32_t> states) {
  const AlgorithmDistillation::Predictions first = predict(batch(states));
  const std::vector<int64_t> ended = ended_regions(first.token_types);
  if (ended.empty()) return first.actions;
  for (const int64_t row : ended) close(row);
  const at::Tensor rows = at::tensor(ended);
  return first.actions.index_copy(0, rows, predict(selected(batch(states), rows)).actions);
}

void RegionContext::append(const StepOfRows& step) {
  for (size_t row = 0; row < current_.size(); ++row) {
    regions_.put(static_cast<int64_t>(row), previous_[row] + current_[row], step);
    ++current_[row];
  }
}

Batch RegionContext::batch(std::span<const int32_t> states) const {
  Batch batch = regions_.first(regions_.capacity());
  batch.previous = at::tensor(previous_);
  batch.current = at::tensor(current_);
  batch.query_state = at::tensor(at::ArrayRef(states.data(), states.size())).view({-1, 2});
  return batch;
}

std::vector<int64_t> RegionContext::ended_regions(const at::Tensor& token_logits) const {
  const at::Tensor types = token_logits.argmax(1);
  std::vector<int64_t> ended;
  for (size_t row = 0; row < current_.size(); ++row) {
    const bool full = 2 * int64_t{current_[row]} == regions_.capacity();
    const bool emitted = types.const_data_ptr<int64_t>()[row] == TokenType::kEndCompress;
    if (full || (emitted && current_[row] > 0)) ended.push_back(static_cast<int64_t>(row));
  }
  return ended;
}

void RegionContext::close(int64_t row) {
  const auto i = static_cast<size_t>(row);
  regions_.drop_front(row, previous_[i]);
  previous_[i] = current_[i];
  current_[i] = 0;
}

}  // namespace adtrain
