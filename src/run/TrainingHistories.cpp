#include "run/TrainingHistories.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/ComputeAll.h"
#include "collectives/Agreement.h"
#include "collectives/LongWork.h"
#include "collectives/NodeMemory.h"
#include "data/ColumnWindows.h"
#include "data/TaskScaling.h"
#include "data/TransitionWindows.h"
#include "run/Histories.h"
#include "run/SpokenProgress.h"
#include "run/own/HeldTasks.h"

namespace adtrain {
namespace {

/// What windows of these tasks borrow episodes by.
Borrowing borrowing(const RunConfig& config, const std::vector<int64_t>& tasks) {
  Borrowing borrowing{static_cast<float>(config.data.borrowed_episodes), config.data.train_n_stream, {}};
  if (borrowing.share == 0) return borrowing;
  const TaskFamily family = TaskFamily::of(config.environment);
  for (const int64_t number : tasks) {
    const Task task = family.task(number);
    const Cell cell = task.key.value_or(task.goal);
    borrowing.paying_cells.push_back(static_cast<uint8_t>(cell.x));
    borrowing.paying_cells.push_back(static_cast<uint8_t>(cell.y));
  }
  return borrowing;
}

class GridTrainingHistories final : public TrainingHistories {
 public:
  GridTrainingHistories(const RunConfig& config, const Ranks& ranks, Console& console)
      : node_(*ranks.communicator, content_of(config.history_file())) {
    TrainingTasks tasks = TrainingTasks::of(config);
    missing_tasks_ = tasks.missing;
    trained_.emplace(read_together(open_histories(config, tasks.trained, config.data.train_n_stream), node_,
                                   ranks, console));
    windows_ = std::make_unique<TransitionWindows>(
        *trained_, config.window_shape(config.training.loss_positions), borrowing(config, tasks.trained));
    digest_ = trained_->digest();
    identity_ = identity_of(*trained_);
    if (tasks.held_out.empty()) return;
    held_out_.emplace(read_together(open_histories(config, tasks.held_out, 1), node_, ranks, console));
    held_out_windows_ =
        std::make_unique<TransitionWindows>(*held_out_, config.window_shape(LossPositions::kLast));
    digest_ += held_out_->digest();
  }

 private:
  NodeMemory node_;
  std::optional<HistorySet> trained_, held_out_;
};

class OwnTrainingHistories final : public TrainingHistories {
 public:
  OwnTrainingHistories(const RunConfig& config, const Ranks& ranks, Console& console, OwnTasks own)
      : own_(std::move(own.histories)),
        histories_(*own_),
        threads_(static_cast<size_t>(std::max<int64_t>(1, config.data.num_workers))) {
    const std::vector<size_t>&trained = histories_.trained(), &held_out = histories_.held_out();
    missing_tasks_ = histories_.notice();
    digest_ = identity_ = histories_.identity();
    // Before anything else is exchanged: what ranks exchange next is of the same tasks.
    check_same(*ranks.communicator, fmt::format("the digest of the histories in {}", config.histories()),
               digest_);
    tasks_in_memory_ = HeldTasks::of(config, ranks, histories_, console);
    std::vector<TaskScale> scales = scales_of(config, ranks, own.known, console);
    tasks_ = tasks_json(config, scales);
    windows_ =
        windows_of(trained, {scales.begin(), scales.begin() + static_cast<std::ptrdiff_t>(trained.size())},
                   histories_.shape(config), ranks, console);
    if (held_out.empty() || config.training.eval_interval == 0) return;
    ColumnWindowShape shape = histories_.shape(config);
    if (!shape.packed) shape.streams = 1;
    shape.weights = TaskWeights::kWindows;
    shape.most_samples = config.data.eval_windows;
    held_out_windows_ =
        windows_of(held_out, {scales.begin() + static_cast<std::ptrdiff_t>(trained.size()), scales.end()},
                   shape, ranks, console);
  }

 private:
  /// Where they are read from.
  const HistorySource& source() const {
    return tasks_in_memory_.held ? *tasks_in_memory_.held : histories_.source();
  }

  /// By all ranks together.
  ComputeAll compute(const Ranks& ranks, Console& console, const char* what, const char* pieces) const {
    return [&ranks, threads = threads_, progress = SpokenProgress(console, what, pieces)](
               size_t count, const std::function<std::string(size_t)>& result) {
      return LongWork(*ranks.communicator, progress).compute(count, threads, result);
    };
  }

  /// Collective.
  std::unique_ptr<ColumnWindows> windows_of(const std::vector<size_t>& tasks,
                                            const std::vector<TaskScale>& scales,
                                            const ColumnWindowShape& shape, const Ranks& ranks,
                                            Console& console) const {
    std::vector<size_t> groups;
    for (const size_t task : tasks) groups.push_back(histories_.group_of(task));
    return std::make_unique<ColumnWindows>(
        ColumnWindows::Origin{source(), tasks, histories_.spaces(), histories_.name(), groups,
                              tasks_in_memory_.held.get(), tasks_in_memory_.why_not_on_gpu.empty()},
        shape, scales, compute(ranks, console, "finding where episodes end", "histories"));
  }

  const TaskSpaces& spaces_of(size_t task) const { return histories_.spaces()[histories_.group_of(task)]; }
  const TaskSpaces& spaces_of_group(const std::string& group) const {
    return *std::ranges::find(histories_.spaces(), group, &TaskSpaces::group);
  }

  /// With the held-out tasks of which there are no histories: evaluations play them.
  std::string tasks_json(const RunConfig& config, std::vector<TaskScale> scales) const {
    for (const UnrecordedTask& unrecorded : histories_.unrecorded()) {
      TaskScale scale = scale_of(config, unrecorded.task);
      scale.number = TaskScale::kNoNumber;
      scale.group = unrecorded.group;
      scale.trained = false;
      scales.push_back(std::move(scale));
    }
    return TaskScaling(std::move(scales)).to_json();
  }

  /// What a task's data say.
  static TaskScale scale_of(const RunConfig& config, const TaskHistories& task) {
    TaskScale scale;
    scale.task = task.name;
    scale.reward_scale = config.data.reward_scale * reward_scale_of(task);
    scale.random_score = score_of(task, "random");
    scale.expert_score = score_of(task, "expert");
    return scale;
  }

  /// Of the trained tasks, then of those held out.
  std::vector<TaskScale> scales_of(const RunConfig& config, const Ranks& ranks,
                                   const std::string& known_tasks, Console& console) const {
    std::vector<size_t> tasks = histories_.trained();
    tasks.insert(tasks.end(), histories_.held_out().begin(), histories_.held_out().end());
    std::vector<TaskScale> scales;
    for (const size_t task : tasks) {
      TaskScale scale = scale_of(config, histories_.source().tasks()[task]);
      scale.number = histories_.number_of(task);
      scale.group = spaces_of(task).group;
      scale.trained = scales.size() < histories_.trained().size();
      scales.push_back(std::move(scale));
    }
    if (!config.data.normalize_observations) return scales;
    if (!known_tasks.empty() &&
        take_known(TaskScaling::from_json(known_tasks, config.folder().tasks().string()), scales))
      return scales;
    const auto trained = static_cast<std::ptrdiff_t>(histories_.trained().size());
    std::vector<TaskScale> all = measured({scales.begin(), scales.begin() + trained},
                                          compute(ranks, console, "measuring observations", "tasks"));
    const std::vector<TaskScale> measured_ones = all;
    for (auto scale = scales.begin() + trained; scale != scales.end(); ++scale) {
      const TaskScale unseen = TaskScaling(measured_ones).of(/*task=*/"", /*reward_scale=*/1, scale->group);
      scale->steps = unseen.steps;
      scale->mean = unseen.mean;
      scale->deviation = unseen.deviation;
      all.push_back(*scale);
    }
    return all;
  }

  /// Takes mean and deviation of each of these tasks from `known`. Returns whether it has all of them, of
  /// these observations: a run may be continued with another split, or may not have been normalised before.
  bool take_known(const TaskScaling& known, std::vector<TaskScale>& scales) const {
    std::map<std::pair<std::string, int64_t>, const TaskScale*> by_task;
    for (const TaskScale& scale : known.tasks()) by_task[{scale.task, scale.number}] = &scale;
    for (const TaskScale& scale : scales) {
      const auto found = by_task.find({scale.task, scale.number});
      if (found == by_task.end() || found->second->trained != scale.trained) return false;
      if (found->second->group != scale.group) return false;
      const Space& observation = spaces_of_group(scale.group).observation;
      const bool normalised = observation.kind == Space::Kind::kBox;
      if (std::ssize(found->second->mean) != (normalised ? observation.size() : 0)) return false;
    }
    for (TaskScale& scale : scales) {
      const TaskScale& found = *by_task.at({scale.task, scale.number});
      scale.steps = found.steps;
      scale.mean = found.mean;
      scale.deviation = found.deviation;
    }
    return true;
  }

  /// Of the trained tasks.
  std::vector<TaskScale> measured(std::vector<TaskScale> scales, const ComputeAll& compute) const {
    const std::vector<size_t>& tasks = histories_.trained();
    const std::vector<std::string> texts = compute(tasks.size(), [&](size_t i) {
      TaskScale scale = scales[i];
      if (spaces_of(tasks[i]).observation.kind == Space::Kind::kBox)
        measure_observations(source(), tasks[i], scale);
      return TaskScaling({scale}).to_json();
    });
    for (size_t i = 0; i < scales.size(); ++i)
      scales[i] = TaskScaling::from_json(texts[i], scales[i].task).tasks().front();
    return scales;
  }

  std::shared_ptr<const OwnHistories> own_;
  const OwnHistories& histories_;
  size_t threads_;
  HeldTasks tasks_in_memory_;
};

}  // namespace

std::unique_ptr<TrainingHistories> TrainingHistories::of(const RunConfig& config, const Ranks& ranks,
                                                         Console& console, OwnTasks own) {
  if (own.histories != nullptr)
    return std::make_unique<OwnTrainingHistories>(config, ranks, console, std::move(own));
  return std::make_unique<GridTrainingHistories>(config, ranks, console);
}

}  // namespace adtrain
