#include "environments/TaskOptions.h"

#include <fmt/format.h>

#include "base/Text.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"

namespace adtrain {
namespace {

constexpr const char* kTasks = "tasks";
constexpr const char* kTrainTasks = "train_tasks";

}  // namespace

void TaskOptions::declare(Section& section) {
  section.key(
      kTasks, tasks,
      "Tasks that there are: that are collected, and of which the split's are trained on and held out. "
      "Numbers, ranges such as 0-39 (both ends included), a list of these such as [0-39, 50], or files "
      "with one a line; null: all of the family. A task is on the same side of the split, whichever "
      "others there are.");
  section.key(
      kTrainTasks, train_tasks,
      "Tasks that are trained on, written like tasks; all others are held out. null: as env_split_seed "
      "and train_env_ratio split them.");
}

void TaskOptions::check(Findings& findings, const EnvironmentOptions& environment) const {
  const size_t before = findings.all().size();
  if (tasks) check_task_numbers(findings, kTasks, *tasks, environment);
  if (train_tasks) check_task_numbers(findings, kTrainTasks, *train_tasks, environment);
  if (findings.all().size() > before || environment.has_own_tasks()) return;
  const int64_t count = TaskFamily::of(environment).task_count();
  if (tasks && train_tasks) {
    const std::string absent = NumberRanges::parse(*train_tasks)->without(present(count)).text();
    if (!absent.empty()) {
      findings.add(kTrainTasks,
                   fmt::format("found {}, which tasks ({}) does not name; expected some of those",
                               abridged(absent), abridged(*tasks)));
    }
  }
  if (!train_tasks && TaskSplit::trained_share(environment, count) == 0) {
    findings.add(
        "train_env_ratio",
        fmt::format("found {}, which is none of the {} tasks of {}; expected a share of one task at "
                    "least, above {:.3g}, or train_tasks that name them",
                    environment.train_ratio(), count, environment.env, 0.5 / static_cast<double>(count)));
  }
}

NumberRanges TaskOptions::present(int64_t task_count) const {
  return tasks ? NumberRanges::parse(*tasks).value() : NumberRanges::below(task_count);
}

void check_task_numbers(Findings& findings, const std::string& key, const std::string& text,
                        const EnvironmentOptions& environment) {
  const auto numbers = NumberRanges::parse(text);
  if (environment.has_own_tasks()) {  // how many there are is known to their environments or histories
    if (numbers) return;
    findings.add(key, fmt::format("found '{}'; expected numbers of tasks and ranges of them with commas "
                                  "between, such as 0-39,50",
                                  abridged(text)));
    return;
  }
  const int64_t count = TaskFamily::of(environment).task_count();
  if (!numbers) {
    findings.add(key, fmt::format("found '{}'; expected numbers of tasks, 0 to {}, and ranges of them with "
                                  "commas between, such as 0-39,50",
                                  abridged(text), count - 1));
  } else if (numbers->largest() >= count) {
    findings.add(key, fmt::format("found task {}; expected tasks of {} with grid_size {}, which are 0 to {}",
                                  numbers->largest(), environment.env, environment.grid_size, count - 1));
  }
}

}  // namespace adtrain
