#include "data/TaskScaling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/Checksum.h"
#include "base/Error.h"
#include "base/Text.h"
#include "config/Scalar.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr double kLeastDeviation = 1e-6;  // as Vintix adds it
constexpr int64_t kStepsAtOnce = 16384;

/// Mean and variance of each element of rows that are added one after the other. Sums are taken of
/// differences from the first row, whose rounding errors are small where the mean is large.
class RunningMoments {
 public:
  void add(const Column& observations, int64_t rows) {
    const auto elements =
        static_cast<int64_t>(observations.type.row_bytes() / size_of(observations.type.type));
    if (count_ == 0 && rows > 0) {
      for (int64_t i = 0; i < elements; ++i) first_.push_back(observations.number(0, i));
      sum_.assign(first_.size(), 0);
      squares_.assign(first_.size(), 0);
    }
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < elements; ++i) {
        const auto at = static_cast<size_t>(i);
        const double difference = observations.number(row, i) - first_[at];
        sum_[at] += difference;
        squares_[at] += difference * difference;
      }
    }
    count_ += rows;
  }

  void put_into(TaskScale& scale) const {
    const auto count = static_cast<double>(count_);
    scale.steps = count_;
    scale.mean.clear();
    scale.deviation.clear();
    for (size_t i = 0; i < first_.size(); ++i) {
      const double mean = sum_[i] / count;
      const double variance = count_ > 1 ? (squares_[i] - mean * sum_[i]) / (count - 1) : 0;
      scale.mean.push_back(first_[i] + mean);
      scale.deviation.push_back(std::sqrt(std::max(0.0, variance)) + kLeastDeviation);
    }
  }

 private:
  int64_t count_ = 0;
  std::vector<double> first_, sum_, squares_;
};

/// An attribute, whose name our files write with a hyphen and Vintix's lists with a low line.
struct NamedNumber {
  std::string name, text;
  std::optional<double> value;  ///< nothing where the text is none
};

std::optional<NamedNumber> attribute_of(const TaskHistories& task, const std::string& first,
                                        const std::string& second) {
  for (const char* between : {"-", "_"}) {
    const auto found = task.attributes.find(first + between + second);
    if (found != task.attributes.end())
      return NamedNumber{found->first, abridged(found->second), Scalar<double>::parse(found->second)};
  }
  return std::nullopt;
}

/// Mean and deviation of the steps of all tasks of a group together that training saw.
TaskScale pooled(std::vector<TaskScale> tasks, const std::string& group) {
  std::erase_if(tasks, [&](const TaskScale& task) { return !task.trained || task.group != group; });
  TaskScale all;
  for (const TaskScale& task : tasks) {
    if (task.mean.empty()) continue;
    all.steps += task.steps;
    all.mean.resize(task.mean.size(), 0);
  }
  for (const TaskScale& task : tasks) {
    const double share = static_cast<double>(task.steps) / static_cast<double>(all.steps);
    for (size_t i = 0; i < task.mean.size(); ++i) all.mean[i] += share * task.mean[i];
  }
  all.deviation.resize(all.mean.size(), 0);
  for (const TaskScale& task : tasks) {
    const auto steps = static_cast<double>(task.steps);
    for (size_t i = 0; i < task.mean.size(); ++i) {
      const double within = task.deviation[i] - kLeastDeviation, between = task.mean[i] - all.mean[i];
      all.deviation[i] += (steps - 1) * within * within + steps * between * between;
    }
  }
  for (double& deviation : all.deviation)
    deviation = std::sqrt(deviation / std::max(1.0, static_cast<double>(all.steps) - 1)) + kLeastDeviation;
  return all;
}

}  // namespace

TaskScaling TaskScaling::from_json(const std::string& text, const std::string& origin) {
  try {
    std::vector<TaskScale> tasks;
    const json document = json::parse(text);
    if (document.at("crc32") != checksum_text(document.at("tasks").dump())) {
      throw DataError(
          fmt::format("{}: is damaged: its checksum is not that of its tasks; restore the file, or "
                      "train again",
                      origin));
    }
    for (const json& task : document.at("tasks")) {
      TaskScale scale;
      scale.task = task.at("task");
      scale.number = task.at("number");
      scale.group = task.value("group", std::string());
      scale.trained = task.at("trained");
      scale.reward_scale = task.at("reward_scale");
      scale.steps = task.value("steps", int64_t{0});
      scale.mean = task.value("mean", std::vector<double>());
      scale.deviation = task.value("deviation", std::vector<double>());
      if (task.contains("random_score")) scale.random_score = task.at("random_score");
      if (task.contains("expert_score")) scale.expert_score = task.at("expert_score");
      if (scale.mean.size() != scale.deviation.size())
        throw DataError(fmt::format("{}: task {} has {} means and {} deviations; expected as many", origin,
                                    abridged(scale.task), scale.mean.size(), scale.deviation.size()));
      tasks.push_back(std::move(scale));
    }
    return TaskScaling(std::move(tasks));
  } catch (const json::exception& error) {
    throw DataError(
        fmt::format("{}: is not what training has written: {}; expected the tasks of a run and "
                    "their scales; restore the file, or train again",
                    origin, error.what()));
  }
}

std::string TaskScaling::to_json() const {
  json tasks = json::array();
  for (const TaskScale& scale : tasks_) {
    json task = {{"task", scale.task},
                 {"number", scale.number},
                 {"trained", scale.trained},
                 {"reward_scale", scale.reward_scale}};
    if (!scale.group.empty()) task["group"] = scale.group;
    if (scale.random_score) task["random_score"] = *scale.random_score;
    if (scale.expert_score) task["expert_score"] = *scale.expert_score;
    if (!scale.mean.empty()) {
      task["steps"] = scale.steps;
      task["mean"] = scale.mean;
      task["deviation"] = scale.deviation;
    }
    tasks.push_back(std::move(task));
  }
  const std::string checksum = checksum_text(tasks.dump());
  return json({{"tasks", std::move(tasks)}, {"crc32", checksum}}).dump() + "\n";
}

const TaskScale* TaskScaling::find(const std::string& task, const std::string& group) const {
  const std::string by_number = "task " + task;
  const TaskScale *named = nullptr, *unnamed = nullptr;
  for (const TaskScale& known : tasks_) {
    if (known.group != group) continue;
    if (known.task == by_number && fmt::format("{}", known.number) == task) unnamed = &known;
    if (known.task != task) continue;
    if (named == nullptr) named = &known;
    if (named->trained == known.trained) continue;
    throw DataError(fmt::format(
        "two tasks of the run are called '{}'{}: it was trained on one, and the other was held out; expected "
        "a name of its own for each, as tasks are known by their names: rename one in the histories and "
        "train again",
        abridged(task), group.empty() ? "" : fmt::format(" in group {}", abridged(group))));
  }
  return named != nullptr ? named : unnamed;
}

const TaskScale* TaskScaling::find_number(int64_t number, const std::string& group) const {
  const auto found = std::ranges::find_if(
      tasks_, [&](const TaskScale& known) { return known.number == number && known.group == group; });
  return found == tasks_.end() ? nullptr : &*found;
}

TaskScale TaskScaling::of(const std::string& task, double reward_scale, const std::string& group) const {
  const TaskScale* const known = find(task, group);
  TaskScale scale = of(known, reward_scale, group);
  if (known == nullptr) scale.task = task;
  return scale;
}

TaskScale TaskScaling::of(const TaskScale* known, double reward_scale, const std::string& group) const {
  if (known != nullptr && known->trained) return *known;
  TaskScale scale;
  scale.group = group;
  scale.trained = false;
  scale.reward_scale = reward_scale;
  if (known != nullptr) scale = *known;
  const TaskScale all = pooled(tasks_, group);
  scale.steps = all.steps;
  scale.mean = all.mean;
  scale.deviation = all.deviation;
  return scale;
}

void measure_observations(const HistorySource& source, size_t task, TaskScale& scale) {
  RunningMoments moments;
  HistoryWindow window;
  const TaskHistories& histories = source.tasks()[task];
  for (size_t history = 0; history < histories.steps.size(); ++history) {
    const int64_t steps = histories.steps[history];
    for (int64_t first = 0; first < steps; first += kStepsAtOnce) {
      source.read(task, history, first, std::min(kStepsAtOnce, steps - first), {ColumnKind::kObservations},
                  window);
      const Column& observations = *window.find(ColumnKind::kObservations);
      if (const auto row = observations.first_not_finite()) {
        throw DataError(
            fmt::format("{}: history {}, step {}: an observation that is NaN or infinite; "
                        "expected finite numbers: leave the task out with tasks, or mend the data",
                        histories.name, history, first + *row));
      }
      moments.add(observations, window.steps);
    }
  }
  moments.put_into(scale);
}

double reward_scale_of(const TaskHistories& task) {
  const auto scale = attribute_of(task, "reward", "scale");
  if (!scale) return 1;
  if (scale->value && *scale->value > 0) return *scale->value;
  throw DataError(
      fmt::format("{}: {} is '{}'; expected a number above 0", task.name, scale->name, scale->text));
}

std::optional<double> score_of(const TaskHistories& task, const std::string& whose) {
  const auto score = attribute_of(task, whose, "score");
  constexpr const char* kNaN = "null";  // as JSON, which has no such number, says it
  if (!score || score->text == kNaN) return std::nullopt;
  if (score->value) return score->value;
  throw DataError(fmt::format("{}: {} is '{}'; expected a number, or no such attribute", task.name,
                              score->name, score->text));
}

}  // namespace adtrain
