#include "evaluation/TransitionRows.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace adtrain {
namespace {

template <class Number>
void drop_entries(Number* first, int64_t count, int64_t size) {
  std::copy(first + count, first + size, first);
  std::fill(first + size - count, first + size, Number(0));
}

}  // namespace

TransitionRows::TransitionRows(int64_t rows, int64_t capacity) : rows_(rows), capacity_(capacity) {
  batch_.states = at::zeros({rows, capacity, 2}, at::kInt);
  batch_.actions = at::zeros({rows, capacity}, at::kInt);
  batch_.rewards = at::zeros({rows, capacity}, at::kFloat);
  batch_.next_states = at::zeros({rows, capacity, 2}, at::kInt);
}

void TransitionRows::put(int64_t row, int64_t column, const StepOfRows& step) {
  const int64_t cell = row * capacity_ + column;
  put_state(row, column, step.states);
  batch_.actions.data_ptr<int32_t>()[cell] = step.actions[static_cast<size_t>(row)];
  batch_.rewards.data_ptr<float>()[cell] = step.rewards[static_cast<size_t>(row)];
  std::copy_n(&step.next_states[2 * static_cast<size_t>(row)], 2,
              batch_.next_states.data_ptr<int32_t>() + 2 * cell);
}

void TransitionRows::put_state(int64_t row, int64_t column, std::span<const int32_t> states) {
  const int64_t cell = row * capacity_ + column;
  std::copy_n(&states[2 * static_cast<size_t>(row)], 2, batch_.states.data_ptr<int32_t>() + 2 * cell);
}

void TransitionRows::drop_front(int64_t row, int64_t count) {
  const int64_t cell = row * capacity_;
  drop_entries(batch_.states.data_ptr<int32_t>() + 2 * cell, 2 * count, 2 * capacity_);
  drop_entries(batch_.actions.data_ptr<int32_t>() + cell, count, capacity_);
  drop_entries(batch_.rewards.data_ptr<float>() + cell, count, capacity_);
  drop_entries(batch_.next_states.data_ptr<int32_t>() + 2 * cell, 2 * count, 2 * capacity_);
}

Batch TransitionRows::columns(int64_t begin, int64_t columns) const {
  const auto part = [&](const at::Tensor& all) { return all.narrow(1, begin, columns).contiguous(); };
  Batch some;
  some.states = part(batch_.states);
  some.actions = part(batch_.actions);
  some.rewards = part(batch_.rewards);
  some.next_states = part(batch_.next_states);
  return some;
}

Batch TransitionRows::first(int64_t columns, const at::Tensor& rows) const {
  Batch first;
  first.states = batch_.states.narrow(1, 0, columns).index_select(0, rows);
  first.actions = batch_.actions.narrow(1, 0, columns).index_select(0, rows);
  first.rewards = batch_.rewards.narrow(1, 0, columns).index_select(0, rows);
  first.next_states = batch_.next_states.narrow(1, 0, columns).index_select(0, rows);
  return first;
}

Batch TransitionRows::last(int64_t columns, std::span<const int64_t> ends) const {
  TransitionRows last(rows_, columns);
  const auto copy = [&]<class Number>(const at::Tensor& from, const at::Tensor& to, int64_t size) {
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t end = ends[static_cast<size_t>(row)], count = std::min(columns, end);
      std::copy_n(from.const_data_ptr<Number>() + size * (row * capacity_ + end - count), size * count,
                  to.data_ptr<Number>() + size * ((row + 1) * columns - count));
    }
  };
  copy.template operator()<int32_t>(batch_.states, last.batch_.states, 2);
  copy.template operator()<int32_t>(batch_.actions, last.batch_.actions, 1);
  copy.template operator()<float>(batch_.rewards, last.batch_.rewards, 1);
  copy.template operator()<int32_t>(batch_.next_states, last.batch_.next_states, 2);
  return last.batch_;
}

}  // namespace adtrain
