#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/NumberRanges.h"
#include "config/Section.h"
#include "environments/EnvironmentOptions.h"

namespace adtrain {

/// Which tasks of the family there are, and which of them are trained on, by number: "0-39,50". The files
/// that a configuration may name instead have been read by then (run/TaskLists).
struct TaskOptions {
  std::optional<std::string> tasks;
  std::optional<std::string> train_tasks;

  void declare(Section& section);
  void check(Findings& findings, const EnvironmentOptions& environment) const;

  /// The tasks that are collected, trained on or held out, of a family of `task_count`: all, unless `tasks`
  /// names some.
  NumberRanges present(int64_t task_count) const;
};

/// Adds a finding where `text`, the value of `key`, is no set of numbers of the environment's tasks.
void check_task_numbers(Findings& findings, const std::string& key, const std::string& text,
                        const EnvironmentOptions& environment);

}  // namespace adtrain
