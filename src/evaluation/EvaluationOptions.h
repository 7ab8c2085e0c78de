#pragma once

#include <cstdint>
#include <optional>

#include "config/Section.h"

namespace adtrain {

/// Which side of the task split is rolled out.
enum class EvaluatedTasks { kTest, kTrain, kAll };

/// How a row of logits becomes an action.
enum class Sampling { kSample, kGreedy };

/// As the configuration spells them: "test", "greedy".
const char* name_of(EvaluatedTasks tasks);
const char* name_of(Sampling sampling);

/// How a model is evaluated in context.
struct EvaluationOptions {
  int64_t eval_episodes = 50;
  int64_t eval_repeats = 1;
  EvaluatedTasks eval_tasks = EvaluatedTasks::kTest;
  std::optional<int64_t> eval_task_limit;
  int64_t eval_batch = 64;
  int64_t eval_seed = 0;
  Sampling eval_sampling = Sampling::kSample;
  bool eval_terminal_observation = false;

  void declare(Section& section);
  void check(Findings& findings) const;
};

}  // namespace adtrain
