#include "evaluation/scoring/GridScoredWindows.h"

#include <utility>

#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {

GridScoredWindows::GridScoredWindows(HistorySet histories, std::vector<Task> tasks, int64_t streams,
                                     const WindowShape& shape, int64_t stride)
    : ScoredWindows(std::move(tasks)),
      histories_(std::move(histories)),
      windows_(histories_, shape),
      streams_(streams),
      stride_(stride),
      digest_(histories_.digest()) {
  for (int64_t phase = 0; phase < shape.episode_stride; ++phase) {
    windows_a_history_ += (actions_in(phase) + stride_ - 1) / stride_;
    samples_a_history_ += windows_.index().samples_in(phase);
  }
}

int64_t GridScoredWindows::actions_in(int64_t phase) const {
  const WindowIndex& index = windows_.index();
  return index.shape().region > 0 ? index.sub_history_steps(phase) : index.samples_in(phase);
}

GridScoredWindows::Action GridScoredWindows::action(int64_t window) const {
  Action found{window / windows_a_history_, 0, window % windows_a_history_};
  for (int64_t there = 0; found.number >= (there = (actions_in(found.phase) + stride_ - 1) / stride_);
       ++found.phase)
    found.number -= there;
  found.number *= stride_;
  return found;
}

int64_t GridScoredWindows::sample(const Action& action) const {
  int64_t sample = action.history * samples_a_history_;
  for (int64_t phase = 0; phase < action.phase; ++phase) sample += windows_.index().samples_in(phase);
  const int64_t region = windows_.index().shape().region;
  if (region == 0) return sample + action.number;
  return sample + action.number / region * (region + 1) + action.number % region;  // a region has an end, too
}

ScoredWindows::Place GridScoredWindows::place(int64_t window) const {
  const Action found = action(window);
  const WindowIndex& index = windows_.index();
  const int64_t before = index.shape().region > 0 ? 0 : index.shape().length - 1;
  return {tasks()[static_cast<size_t>(found.history / streams_)].number, found.history % streams_,
          index.original_step(found.phase, found.number + before), /*group=*/0};
}

Batch GridScoredWindows::assemble(std::span<const int64_t> windows) const {
  std::vector<int64_t> samples;
  for (const int64_t window : windows) samples.push_back(sample(action(window)));
  return windows_.assemble(samples);
}

std::string GridScoredWindows::description() const {
  return fmt::format("{} of {} of {}", counted(size(), "window", "windows"),
                     counted(histories_.histories(), "history", "histories"),
                     counted(std::ssize(tasks()), "task", "tasks"));
}

}  // namespace adtrain
