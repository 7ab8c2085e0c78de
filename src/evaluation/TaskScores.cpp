#include "evaluation/TaskScores.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/Text.h"
#include "data/formats/TaskTable.h"

namespace adtrain {
namespace {

/// A key that is nearly a known one would be passed over in silence like others, and what it says lost. Where
/// the task has the known one, too, as expert_score beside expert_score_std, both are meant.
void refuse_slips(const TaskTable::Row& row) {
  const std::vector<std::string> fields = row.fields();
  std::vector<std::string> lacking;
  for (const char* const known : {"random_score", "expert_score", "group"})
    if (std::ranges::find(fields, known) == fields.end()) lacking.emplace_back(known);
  for (const std::string& field : fields) {
    const std::string nearest = nearest_name(field, lacking);
    if (nearest.empty()) continue;
    row.refuse(field,
               fmt::format("is no key of scores; did you mean {}, which the task does not have?", nearest));
  }
}

}  // namespace

TaskScores TaskScores::read(const std::filesystem::path& file) {
  TaskScores scores;
  const TaskTable table =
      TaskTable::read(file,
                      "expected a map of tasks such as 'Ant-v4: {random_score: -60, expert_score: 6300}' in "
                      "the file that eval_scores names");
  for (const TaskTable::Row& row : table.rows()) {
    refuse_slips(row);
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

std::string TaskScores::nearest(const std::string& task) const {
  if (scores_.contains(task)) return "";
  std::vector<std::string> names;
  for (const auto& [name, score] : scores_) names.push_back(name);
  return nearest_name(task, names);
}

}  // namespace adtrain
