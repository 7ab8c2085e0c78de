#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/formats/HistorySource.h"

namespace adtrain {

/// By what observations and rewards of one task are scaled before a network sees them.
struct TaskScale {
  /// Of a task without histories.
  static constexpr int64_t kNoNumber = -1;

  std::string task;         ///< its name
  int64_t number = 0;       ///< as the split numbers it
  bool trained = true;      ///< or held out
  double reward_scale = 1;  ///< a reward is multiplied by it
  int64_t steps = 0;        ///< over which mean and deviation are taken
  /// Of each element of an observation, in C order: (x − mean) ÷ deviation is what a network sees. The
  /// deviation is the sample's (divided by steps − 1) plus 1e-6. Both empty: it sees x.
  std::vector<double> mean, deviation;
  std::string group = "";  ///< of equal spaces, where a run has several; else ""
  /// What random actions and an expert earn in an episode, where the data say it.
  std::optional<double> random_score = std::nullopt, expert_score = std::nullopt;
};

/// The tasks of a run and their scales, which belong to the run as its weights do.
class TaskScaling {
 public:
  TaskScaling() = default;
  explicit TaskScaling(std::vector<TaskScale> tasks) : tasks_(std::move(tasks)) {}
  /// Reads what to_json has written. Throws DataError, which names `origin`, for anything else.
  static TaskScaling from_json(const std::string& text, const std::string& origin);
  std::string to_json() const;

  const std::vector<TaskScale>& tasks() const { return tasks_; }
  /// The task of that name; null where it is not there. One that its data do not name is called `task 3`, by
  /// its number, and is found as `3`, too: a list of numbers calls it so. Throws DataError where training saw
  /// one task of that name and held out another.
  const TaskScale* find(const std::string& task, const std::string& group = "") const;
  /// The task of that number, which is not kNoNumber.
  const TaskScale* find_number(int64_t number, const std::string& group = "") const;
  /// The scale of the task of that name, as find() finds it. Of a task that training did not see: mean and
  /// deviation over the steps of all tasks of its group that it saw. Of one that is not there at all, which
  /// is of `group`, also `reward_scale`. What is known of its scores is in it.
  TaskScale of(const std::string& task, double reward_scale, const std::string& group = "") const;
  /// The same of what find() or find_number() has returned.
  TaskScale of(const TaskScale* known, double reward_scale, const std::string& group = "") const;

 private:
  std::vector<TaskScale> tasks_;
};

/// Reads all observations of a task once and sets mean and deviation. Throws DataError where one is not
/// finite.
void measure_observations(const HistorySource& source, size_t task, TaskScale& scale);

/// What a task's own data say: its attribute reward-scale (or reward_scale), or 1. Throws DataError where
/// that is no number above 0.
double reward_scale_of(const TaskHistories& task);
/// The same of its attribute random-score or expert-score (or random_score, expert_score): `whose` is
/// "random" or "expert". Nothing where there is none, or a NaN. Throws DataError where it is no number.
std::optional<double> score_of(const TaskHistories& task, const std::string& whose);

}  // namespace adtrain
