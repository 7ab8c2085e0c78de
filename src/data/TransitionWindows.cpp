#include "data/TransitionWindows.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {
namespace {

/// Writes transitions into the rows of a Batch's tensors.
class RowWriter {
 public:
  RowWriter(int64_t rows, int64_t transitions) : transitions_(transitions) {
    batch_.states = at::zeros({rows, transitions, 2}, at::kInt);
    batch_.actions = at::zeros({rows, transitions}, at::kInt);
    batch_.rewards = at::zeros({rows, transitions}, at::kFloat);
    batch_.next_states = at::zeros({rows, transitions, 2}, at::kInt);
    states_ = batch_.states.data_ptr<int32_t>();
    actions_ = batch_.actions.data_ptr<int32_t>();
    rewards_ = batch_.rewards.data_ptr<float>();
    next_states_ = batch_.next_states.data_ptr<int32_t>();
  }

  void put(int64_t row, int64_t column, const Transition& transition) {
    const int64_t cell = row * transitions_ + column;
    for (int64_t axis = 0; axis < 2; ++axis) {
      states_[2 * cell + axis] = transition.state[axis];
      next_states_[2 * cell + axis] = transition.next_state[axis];
    }
    actions_[cell] = transition.action;
    rewards_[cell] = transition.reward;
  }

  Batch& batch() { return batch_; }

 private:
  int64_t transitions_;
  Batch batch_;
  int32_t* states_;
  int32_t* actions_;
  float* rewards_;
  int32_t* next_states_;
};

}  // namespace

std::string TransitionWindows::description() const {
  return fmt::format("{} of {}, {} in memory", counted(samples(), "window", "windows"),
                     counted(histories_.histories(), "history", "histories"),
                     human_bytes(static_cast<double>(bytes())));
}

Batch TransitionWindows::assemble(std::span<const int64_t> samples) const {
  return index_.shape().region > 0 ? assemble_compressed(samples) : assemble_plain(samples);
}

BorrowedEpisodes TransitionWindows::borrowed(const Transition* histories, const uint8_t* paying_cells) const {
  return {.histories = histories,
          .paying_cells = paying_cells,
          .count = histories_.histories(),
          .steps = histories_.steps(),
          .streams = borrowing_.streams,
          .horizon = index_.shape().horizon,
          .share = borrowing_.share};
}

Batch TransitionWindows::assemble_plain(std::span<const int64_t> samples) const {
  const int64_t length = index_.shape().length;
  RowWriter rows(static_cast<int64_t>(samples.size()), length);
  const BorrowedEpisodes borrowed =
      this->borrowed(histories_.transitions().data(), borrowing_.paying_cells.data());
  if (borrowed.any()) rows.batch().current = at::zeros({static_cast<int64_t>(samples.size())}, at::kInt);
  for (int64_t row = 0; row < static_cast<int64_t>(samples.size()); ++row) {
    const Window window = index_.window(samples[static_cast<size_t>(row)]);
    const auto history = histories_.history(window.history);
    for (int64_t i = 0; i < length; ++i) {
      rows.put(row, i, history[static_cast<size_t>(index_.original_step(window.phase, window.start + i))]);
    }
    if (!borrowed.any()) continue;
    const int64_t sample = samples[static_cast<size_t>(row)], offset = window.start % borrowed.horizon;
    const int64_t wanted = borrowed.wanted(sample, borrowed.slots(window.start, length));
    int64_t column = 0;
    for (int64_t slot = 0; slot < wanted; ++slot) {
      const Transition* episode = borrowed.episode(sample, slot, window.history);
      if (episode == nullptr) break;
      for (; column + offset < (slot + 1) * borrowed.horizon; ++column) {
        Transition transition = episode[(column + offset) % borrowed.horizon];
        transition.reward = 0;
        rows.put(row, column, transition);
      }
    }
    rows.batch().current.data_ptr<int32_t>()[row] = static_cast<int32_t>(column);
  }
  return std::move(rows.batch());
}

Batch TransitionWindows::assemble_compressed(std::span<const int64_t> samples) const {
  const int64_t region = index_.shape().region;
  const auto count = static_cast<int64_t>(samples.size());
  RowWriter rows(count, 2 * region);
  Batch& batch = rows.batch();
  batch.previous = at::zeros({count}, at::kInt);
  batch.current = at::zeros({count}, at::kInt);
  batch.query_state = at::zeros({count, 2}, at::kInt);
  batch.query_action = at::full({count}, -1, at::kInt);
  for (int64_t row = 0; row < count; ++row) {
    const Window window = index_.window(samples[static_cast<size_t>(row)]);
    const auto history = histories_.history(window.history);
    const auto at_offset = [&](int64_t offset) -> const Transition& {
      return history[static_cast<size_t>(index_.original_step(window.phase, offset))];
    };
    const int64_t previous = window.start > 0 ? region : 0;
    const int64_t query = window.start + window.current;
    for (int64_t i = 0; i < previous + window.current; ++i) {
      rows.put(row, i, at_offset(window.start - previous + i));
    }
    batch.previous.data_ptr<int32_t>()[row] = static_cast<int32_t>(previous);
    batch.current.data_ptr<int32_t>()[row] = static_cast<int32_t>(window.current);
    // The end of the last region may be the end of the history: its query is the last state reached.
    const bool beyond = query >= index_.sub_history_steps(window.phase);
    const uint8_t* state = beyond ? at_offset(query - 1).next_state : at_offset(query).state;
    for (int64_t axis = 0; axis < 2; ++axis)
      batch.query_state.data_ptr<int32_t>()[2 * row + axis] = state[axis];
    if (window.current < region) batch.query_action.data_ptr<int32_t>()[row] = at_offset(query).action;
  }
  return std::move(batch);
}

}  // namespace adtrain
