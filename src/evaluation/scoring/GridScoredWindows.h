#pragma once

#include "data/HistorySet.h"
#include "data/TransitionWindows.h"
#include "evaluation/scoring/ScoredWindows.h"

namespace adtrain {

/// Windows of a family's tasks. With a plain context a window is n_transit transitions, the last of which has
/// the action. With compressed context every step has one, whose context is the region before its own, and
/// its own up to it. With episode_stride k the k phases of a history follow each other. Immutable.
class GridScoredWindows final : public ScoredWindows {
 public:
  /// `tasks` are those of the histories, in their order, which have `streams` each. `stride`: of the actions
  /// of a phase, the first and every stride-th after it. Throws DataError where there is no window.
  GridScoredWindows(HistorySet histories, std::vector<Task> tasks, int64_t streams, const WindowShape& shape,
                    int64_t stride);
  GridScoredWindows(const GridScoredWindows&) = delete;
  GridScoredWindows& operator=(const GridScoredWindows&) = delete;

  int64_t size() const override { return histories_.histories() * windows_a_history_; }
  Place place(int64_t window) const override;
  Batch assemble(std::span<const int64_t> windows) const override;
  const std::string& digest() const override { return digest_; }
  std::string description() const override;

 private:
  /// An action of a history.
  struct Action {
    int64_t history, phase;
    int64_t number;  ///< among the actions of its phase that have a window
  };
  /// Actions of a phase that have a window, before the stride.
  int64_t actions_in(int64_t phase) const;
  Action action(int64_t window) const;
  /// The number that TransitionWindows has for an action's window.
  int64_t sample(const Action& action) const;

  HistorySet histories_;
  TransitionWindows windows_;  ///< borrows histories_
  int64_t streams_, stride_;
  int64_t windows_a_history_ = 0, samples_a_history_ = 0;
  std::string digest_;
};

}  // namespace adtrain
