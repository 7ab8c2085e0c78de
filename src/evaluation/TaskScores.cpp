#include "evaluation/TaskScores.h"

#include <cmath>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "base/Error.h"
#include "base/File.h"
#include "config/Scalar.h"

namespace adtrain {
namespace {

constexpr const char* kExpected =
    "expected a map of tasks such as 'Ant-v4: {random_score: -60, expert_score: 6300}'";

[[noreturn]] void refuse(const std::filesystem::path& file, const YAML::Mark& mark, const std::string& what) {
  throw DataError(fmt::format("{}:{}: {}", file.string(), mark.line + 1, what));
}

std::optional<double> number_in(const YAML::Node& task, const char* key, const std::filesystem::path& file) {
  const YAML::Node value = task[key];
  if (!value || value.IsNull()) return std::nullopt;
  const auto number = value.IsScalar() ? Scalar<double>::parse(value.Scalar()) : std::nullopt;
  if (number && std::isfinite(*number)) return number;
  refuse(file, value.Mark(), fmt::format("{} is no number; expected one, or no such key", key));
}

TaskScore score_of(const std::string& name, const YAML::Node& task, const std::filesystem::path& file) {
  if (!task.IsMap()) refuse(file, task.Mark(), fmt::format("'{}' is no map; {}", name, kExpected));
  TaskScore score{number_in(task, "random_score", file), number_in(task, "expert_score", file), ""};
  if (const YAML::Node group = task["group"]; group && group.IsScalar()) score.group = group.Scalar();
  if (score.random && score.expert && *score.random == *score.expert) {
    refuse(file, task.Mark(),
           fmt::format("'{}' has {} as both scores, between which no return can be placed; expected two",
                       name, *score.random));
  }
  return score;
}

}  // namespace

TaskScores TaskScores::read(const std::filesystem::path& file) {
  TaskScores scores;
  try {
    const YAML::Node root = YAML::Load(read_file(file));
    if (!root.IsMap()) refuse(file, root.Mark(), kExpected);
    for (const auto& task : root) {
      const auto name = task.first.as<std::string>();
      scores.scores_[name] = score_of(name, task.second, file);
    }
  } catch (const YAML::Exception& error) {
    refuse(file, error.mark, fmt::format("{}; {}", error.msg, kExpected));
  } catch (const std::filesystem::filesystem_error& error) {
    throw DataError(fmt::format("eval_scores: {}; expected a file with the scores of tasks", error.what()));
  }
  return scores;
}

TaskScore TaskScores::of(const std::string& task) const {
  const auto found = scores_.find(task);
  return found == scores_.end() ? TaskScore{} : found->second;
}

}  // namespace adtrain
