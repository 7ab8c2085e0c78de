#include "data/HistoryReplay.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "environments/EnvironmentBatch.h"

namespace adtrain {
namespace {

/// Compares one step of a history with its environment's.
class StepCheck {
 public:
  StepCheck(const std::string& file, int64_t number, const History& history, const TaskFamily& family)
      : file_(file),
        number_(number),
        history_(history),
        family_(family),
        task_(family.plugin() == nullptr ? std::optional(family.task(number)) : std::nullopt),
        environments_(family, std::vector<int64_t>(static_cast<size_t>(history.streams), number)),
        start_(cell(environments_.states(), 0)) {}

  void check(int64_t step) {
    const std::span<const int32_t> actions = row(history_.actions, step, 1),
                                   states = row(history_.states, step, 2),
                                   next_states = row(history_.next_states, step, 2);
    const std::span<const float> rewards = row(history_.rewards, step, 1);
    const std::span<const uint8_t> dones = row(history_.dones, step, 1);
    const bool begins = step % family_.horizon() == 0;
    const auto stands = [&](size_t i) { return cell(states, i) == cell(environments_.states(), i); };
    for (size_t i = 0; i < actions.size(); ++i) {
      if (!stands(i)) fail_state(step, i, cell(states, i), cell(environments_.states(), i), begins);
    }
    environments_.step(actions);
    const bool ends = environments_.done();
    for (size_t i = 0; i < actions.size(); ++i) {
      const Cell moved_to = cell(environments_.next_states(), i), found = cell(next_states, i);
      const bool led_there = found == moved_to || (ends && found == cell(environments_.states(), i));
      if (dones[i] != static_cast<uint8_t>(ends)) fail_end(step, i, dones[i] != 0);
      if (!led_there) fail_move(step, i, actions[i], cell(states, i), found, moved_to, ends);
      if (rewards[i] != static_cast<float>(environments_.rewards()[i])) {
        fail_reward(step, i, rewards[i], environments_.rewards()[i]);
      }
    }
  }

 private:
  template <class Value>
  std::span<const Value> row(const std::vector<Value>& values, int64_t step, int64_t coordinates) const {
    const auto length = static_cast<size_t>(history_.streams * coordinates);
    return std::span(values).subspan(static_cast<size_t>(step) * length, length);
  }
  static Cell cell(std::span<const int32_t> pairs, size_t i) { return {pairs[2 * i], pairs[2 * i + 1]}; }
  static std::string text(Cell cell) { return fmt::format("({}, {})", cell.x, cell.y); }
  static std::string move_text(Cell from, Cell to) {
    const auto component = [](int32_t value) { return value == 0 ? "0" : fmt::format("{:+}", value); };
    return fmt::format("({},{})", component(to.x - from.x), component(to.y - from.y));
  }

  [[noreturn]] void fail(int64_t step, size_t stream, const std::string& what) const {
    throw DataError(fmt::format(
        "{}: task {}, stream {}, step {}: {}. The file is no history of {} with grid_size {} and horizon {}, "
        "or it is damaged: docs/history-format.md says how actions move, where episodes start and what "
        "pays; correct the file or the configuration, or collect again",
        file_, number_, stream, step, what, family_.name(), family_.grid_size(), family_.horizon()));
  }
  [[noreturn]] void fail_state(int64_t step, size_t stream, Cell found, Cell expected, bool begins) const {
    fail(step, stream,
         begins ? fmt::format("an episode started at {}, expected {}", text(found), text(expected))
                : fmt::format("the state is {}, expected {}, where the step before led to", text(found),
                              text(expected)));
  }
  [[noreturn]] void fail_end(int64_t step, size_t stream, bool ended) const {
    fail(step, stream,
         fmt::format("an episode {}, expected episodes of {} steps (horizon), the first from step 0 on",
                     ended ? "ended" : "went on", family_.horizon()));
  }
  [[noreturn]] void fail_move(int64_t step, size_t stream, int32_t action, Cell from, Cell found,
                              Cell expected, bool ends) const {
    fail(step, stream,
         fmt::format("action {} moved {}, expected {}{}, from {}", action, move_text(from, found),
                     move_text(from, expected),
                     ends ? fmt::format(", or the reset to {} at this episode's end", text(start_)) : "",
                     text(from)));
  }
  [[noreturn]] void fail_reward(int64_t step, size_t stream, float found, int32_t expected) const {
    fail(step, stream,
         fmt::format("the reward is {}, expected {}{}", found, expected, task_ ? goal_text(*task_) : ""));
  }
  static std::string goal_text(const Task& task) {
    return fmt::format(" (the goal is {}{})", text(task.goal),
                       task.key ? ", the key " + text(*task.key) : "");
  }

  const std::string& file_;
  int64_t number_;
  const History& history_;
  const TaskFamily& family_;
  std::optional<Task> task_;  ///< none where a plug-in alone knows it
  EnvironmentBatch environments_;
  Cell start_;
};

}  // namespace

void check_by_replay(const std::string& file, int64_t task, const History& history,
                     const TaskFamily& family) {
  StepCheck replay(file, task, history, family);
  for (int64_t step = 0; step < history.steps; ++step) replay.check(step);
}

}  // namespace adtrain
