#include "run/own/ScoredOwnTasks.h"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/ComputeAll.h"
#include "base/Error.h"
#include "base/Text.h"
#include "collectives/LongWork.h"
#include "data/ColumnWindows.h"
#include "data/TaskScaling.h"
#include "evaluation/scoring/ColumnScoredWindows.h"
#include "run/ScoredHistories.h"
#include "run/SpokenProgress.h"
#include "run/own/GroupsOfTasks.h"
#include "run/own/NamedHistories.h"
#include "run/own/OwnTasksOfRun.h"

namespace adtrain {
namespace {

/// The tasks of histories that the model reads, and what it knows of them.
class ReadableTasks {
 public:
  ReadableTasks(const RunConfig& config, const RunFolder& run, const NamedHistories& histories)
      : spaces_(config.model_shape().spaces), scaling_(OwnTasksOfRun(run).scaling()) {
    const HistorySource& source = histories.source();
    const GroupsOfTasks groups(source);
    for (size_t task = 0; task < source.tasks().size(); ++task) {
      const GroupOfTasks& group = groups.all()[groups.of(task)];
      if (const auto place = group.place_among(spaces_)) {
        groups_[task] = *place;
      } else {
        ++left_out_;
      }
    }
    if (!groups_.empty()) return;
    std::vector<std::string> trained;
    for (const TaskSpaces& spaces : spaces_)
      trained.push_back((spaces.group.empty() ? "" : spaces.group + ": ") + spaces.text());
    throw DataError(fmt::format(
        "{} has no task of the spaces that the model was trained for, which are:\n  {}\nIt has:\n  {}\n"
        "expected histories of tasks with such spaces",
        histories.name(), join(trained, "\n  "),
        join(groups.texts([&](size_t task) { return histories.number_of(task); }), "\n  ")));
  }

  /// By place of the source: the place of its group among the model's.
  const std::map<size_t, size_t>& groups() const { return groups_; }
  const std::vector<TaskSpaces>& spaces() const { return spaces_; }
  int64_t left_out() const { return left_out_; }
  bool was_trained(const std::string& name, size_t group) const {
    const TaskScale* const known = scaling_.find(name, spaces_[group].group);
    return known != nullptr && known->trained;
  }
  TaskScale scale(const TaskHistories& task, size_t group, double reward_scale) const {
    return scaling_.of(task.name, reward_scale * reward_scale_of(task), spaces_[group].group);
  }

 private:
  std::vector<TaskSpaces> spaces_;
  TaskScaling scaling_;
  std::map<size_t, size_t> groups_;
  int64_t left_out_ = 0;
};

ColumnWindowShape shape_of(const RunConfig& config) {
  const DataOptions& data = config.data;
  return {.length = config.model.n_transit,
          .stride = config.scoring.score_stride,
          .margin = data.window_margin,
          .last_fraction = data.last_fraction,
          .steps = data.train_source_timesteps,
          .streams = data.train_n_stream,
          .episode_stride = data.episode_stride};
}

}  // namespace

std::unique_ptr<ScoredWindows> scored_own_tasks(const RunConfig& config, const RunFolder& run,
                                                const Ranks& ranks, Console& console) {
  const auto histories = std::make_shared<const NamedHistories>(config);
  const HistorySource& source = histories->source();
  const ReadableTasks readable(config, run, *histories);
  if (readable.left_out() > 0) {
    console.notice(fmt::format("{} of {} tasks are left out, as they are of other spaces than the model's",
                               readable.left_out(), source.tasks().size()));
  }
  std::map<int64_t, size_t> places;  // of tasks, by number
  std::vector<ScoredWindows::Task> tasks;
  for (const auto& [task, group] : readable.groups()) {
    const std::string& name = source.tasks()[task].name;
    places[histories->number_of(task)] = task;
    tasks.push_back({histories->number_of(task), name, readable.was_trained(name, group)});
  }
  std::map<size_t, ScoredWindows::Task> chosen;
  for (ScoredWindows::Task& task : scored_tasks(config, std::move(tasks), histories->name()))
    chosen[places.at(task.number)] = std::move(task);

  ColumnWindows::Origin origin{source, {}, readable.spaces(), histories->name()};
  std::vector<TaskScale> scales;
  for (const auto& [place, task] : chosen) {
    const size_t group = readable.groups().at(place);
    origin.tasks.push_back(place);
    origin.groups.push_back(group);
    scales.push_back(readable.scale(source.tasks()[place], group, config.data.reward_scale));
  }
  const ComputeAll compute = [&](size_t count, const std::function<std::string(size_t)>& result) {
    return LongWork(*ranks.communicator, SpokenProgress(console, "finding where episodes end", "histories"))
        .compute(count, static_cast<size_t>(ranks.cpu_threads), result);
  };
  auto windows = std::make_unique<ColumnWindows>(std::move(origin), shape_of(config), scales, compute);
  // The windows read the source, which lives as long as the histories do.
  return std::make_unique<ColumnScoredWindows>(std::shared_ptr<const HistorySource>(histories, &source),
                                               std::move(windows), chosen, histories->identity());
}

}  // namespace adtrain
