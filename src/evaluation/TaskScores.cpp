#include "evaluation/TaskScores.h"

#include <fmt/format.h>

#include "data/formats/TaskTable.h"

namespace adtrain {

TaskScores TaskScores::read(const std::filesystem::path& file) {
  TaskScores scores;
  const TaskTable table =
      TaskTable::read(file,
                      "expected a map of tasks such as 'Ant-v4: {random_score: -60, expert_score: 6300}' in "
                      "the file that eval_scores names");
  for (const TaskTable::Row& row : table.rows()) {
    TaskScore score{row.number("random_score"), row.number("expert_score"), ""};
    if (row.is_text("group")) score.group = row.text("group").value();
    if (score.has_both() && !score.is_scale()) {
      const bool equal = *score.random == *score.expert;
      row.refuse(
          "expert_score",
          fmt::format("is {}, and {}, between which no return can be placed; expected an expert_score "
                      "above random_score: correct them, or leave the task out",
                      *score.expert,
                      equal ? "so is random_score" : fmt::format("random_score is {}", *score.random)));
    }
    scores.scores_[row.name()] = score;
  }
  return scores;
}

TaskScore TaskScores::of(const std::string& task) const {
  const auto found = scores_.find(task);
  return found == scores_.end() ? TaskScore{} : found->second;
}

}  // namespace adtrain
