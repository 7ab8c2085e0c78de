#include "evaluation/scoring/ScoringOptions.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "evaluation/EvaluationOptions.h"
#include "memory/AutoBatchSize.h"

namespace adtrain {

void ScoringOptions::declare(Section& section) {
  section.key("score_tasks", score_tasks,
              "Tasks of the histories that adtrain score reads: test for those that the run has not trained "
              "on, train for those that it has, all, or tasks by number, written like tasks.");
  section
      .key("score_stride", score_stride,
           "A window begins at every k-th step of a history; with 1 every action is scored that has a whole "
           "window before it.")
      .unit("steps")
      .at_least(1);
  section
      .key("score_max_samples", score_max_samples,
           "At most so many windows, evenly spread over all of them; null for all. adtrain score also takes "
           "it as max_samples.")
      .unit("windows")
      .at_least(1);
  section
      .key("score_batch", score_batch,
           "Windows of one forward pass. auto: a power of two that leaves 32 batches or more; on a CPU at "
           "most 16, of 4096 steps together, on a GPU at most 256, or as many as fit its memory. adtrain "
           "score also takes it as batch_size.")
      .unit("windows")
      .or_word("auto", kAutoBatchSize, {kAutoBatchSizeWord})
      .at_least(1)
      .at_most(1e6);
  section.key("score_output_dir", score_output_dir,
              "Folder for the scores; null: scores/HISTORIES-step-N in the run's folder. adtrain score also "
              "takes it as output_dir.");
  section.all_free_on_resume();
}

void ScoringOptions::check(Findings& findings, const EnvironmentOptions& environment) const {
  check_chosen_tasks(findings, "score_tasks", score_tasks, environment);
}

std::vector<std::string> with_names_of_scoring(std::vector<std::string> assignments) {
  constexpr std::array<std::pair<const char*, const char*>, 3> kNames = {
      {{"max_samples", "score_max_samples"},
       {"batch_size", "score_batch"},
       {"output_dir", "score_output_dir"}}};
  for (std::string& assignment : assignments) {
    for (const auto& [there, here] : kNames) {
      const std::string key = std::string(there) + "=";
      if (assignment.starts_with(key)) assignment = fmt::format("{}={}", here, assignment.substr(key.size()));
    }
  }
  return assignments;
}

}  // namespace adtrain
