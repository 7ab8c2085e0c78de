#include "run/Histories.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/Error.h"
#include "base/NumberRanges.h"
#include "base/Text.h"
#include "collection/CollectionSettings.h"
#include "collectives/LongWork.h"
#include "data/HistoryFile.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "run/SpokenProgress.h"

namespace adtrain {
namespace {

/// For a file that lacks tasks: without --overwrite `adtrain collect` keeps an existing file as it is.
constexpr const char* kCollectAgain =
    "collect all tasks anew with `adtrain collect --overwrite`, which replaces the file";

std::filesystem::path existing_history_file(const RunConfig& config) {
  std::filesystem::path file = config.history_file();
  if (std::filesystem::exists(file)) return file;
  throw DataError(
      fmt::format("{} does not exist; expected learning histories there: run `adtrain collect` with the same "
                  "configuration, or point traj_dir at the folder that holds them",
                  file.string()));
}

std::string text_of(const NumberRanges& tasks) {
  return tasks.empty() ? "none" : abridged(tasks.text());
}

/// One side of the split in its order, and what the file has of it.
struct Side {
  Side(const std::vector<int64_t>& wanted, const NumberRanges& file)
      : all(NumberRanges::of(wanted)), missing(all.without(file)) {
    std::ranges::copy_if(wanted, std::back_inserter(held), [&](int64_t task) { return file.contains(task); });
  }

  NumberRanges all, missing;
  std::vector<int64_t> held;
};

void check_trained(const Side& trained, const NumberRanges& in_file, const RunConfig& config) {
  const std::string file = config.history_file().string();
  if (config.tasks.train_tasks && !trained.missing.empty()) {
    throw DataError(fmt::format(
        "{} holds the tasks {}, and train_tasks names {}, which are not among them; expected tasks "
        "that it holds: leave those out, or {}",
        file, text_of(in_file), text_of(trained.missing), kCollectAgain));
  }
  if (!trained.held.empty()) return;
  throw DataError(fmt::format(
      "{} holds the tasks {}, and none of those that the split trains on, which are {}; expected one of them "
      "at least: name what is trained on with train_tasks, name the family that the file was collected on "
      "(env, grid_size), or {}",
      file, text_of(in_file), text_of(trained.all), kCollectAgain));
}

void check_held_out(const Side& held_out, const NumberRanges& in_file, const RunConfig& config) {
  if (!held_out.held.empty()) return;
  throw DataError(fmt::format(
      "{} holds the tasks {}, and none of those that the split holds out, which are {}; expected one of them "
      "at least for the held-out loss: name fewer train_tasks, set eval_interval: 0 to train without "
      "that loss, or {}",
      config.history_file().string(), text_of(in_file), text_of(held_out.all), kCollectAgain));
}

/// Leaves out the tasks that earn less than least_final_return, and says how many.
void keep_learnt(const RunConfig& config, const HistoryFile& file, TrainingTasks& tasks) {
  if (!config.data.least_final_return) return;
  const double least = *config.data.least_final_return;
  const TaskFamily family = TaskFamily::of(config.environment);
  const HistoryBounds bounds = {family.grid_size(), family.num_actions()};
  open_histories(config, tasks.trained, config.data.train_n_stream);  // checks that the file holds so much
  const size_t all = tasks.trained.size();
  double most = std::numeric_limits<double>::lowest();
  std::erase_if(tasks.trained, [&](int64_t task) {
    const double earned =
        file.read(task, config.data.train_source_timesteps, config.data.train_n_stream, bounds).late_return();
    most = std::max(most, earned);
    return earned < least;
  });
  if (tasks.trained.empty()) {
    throw DataError(fmt::format(
        "{}: none of the {} tasks that the split trains on earns {} an episode in the last tenth of its "
        "histories; the best one earns {:.2f}; expected a least_final_return that some task reaches",
        config.history_file().string(), all, least, most));
  }
  tasks.missing +=
      fmt::format("{}training has the {} of {} tasks whose histories earn at least {} at the end",
                  tasks.missing.empty() ? "" : "; ", tasks.trained.size(), all, least);
}

}  // namespace

TrainingTasks TrainingTasks::of(const RunConfig& config) {
  const int64_t count = TaskFamily::of(config.environment).task_count();
  const TaskSplit split = TaskSplit::of(config.environment, count, config.tasks);
  if (split.train.empty()) {
    throw ConfigError(fmt::format(
        "the split has no task to train on: of the tasks {}, it holds all {} out; expected one at least: "
        "raise train_env_ratio ({}), name more tasks, or name train_tasks",
        text_of(config.tasks.present(count)), split.test.size(), config.environment.train_ratio()));
  }
  const HistoryFile file(existing_history_file(config));
  check_collected_with(config.history_file(), file.settings(),
                       collection_settings(config.environment, config.collection));
  const Side trained(split.train, file.tasks()), held_out(split.test, file.tasks());
  check_trained(trained, file.tasks(), config);
  const bool measured = !split.test.empty() && config.training.eval_interval > 0;
  if (measured) check_held_out(held_out, file.tasks(), config);
  TrainingTasks tasks{trained.held, measured ? held_out.held : std::vector<int64_t>(), ""};
  if (!trained.missing.empty() || (measured && !held_out.missing.empty())) {
    tasks.missing = fmt::format(
        "{} lacks tasks of the split: training has {} of {} (missing: {}), the held-out loss {} of {} "
        "(missing: {})",
        config.history_file().string(), trained.held.size(), split.train.size(), text_of(trained.missing),
        tasks.held_out.size(), measured ? split.test.size() : 0,
        measured ? text_of(held_out.missing) : "none");
    // Returns are measured in the environments, which need no histories.
    if (config.training.returns.interval > 0) {
      tasks.missing +=
          "; return_interval measures train_return and test_return on the split's tasks, also "
          "on missing ones";
    }
  }
  keep_learnt(config, file, tasks);
  return tasks;
}

HistorySetReader open_histories(const RunConfig& config, const std::vector<int64_t>& tasks, int64_t streams) {
  return {existing_history_file(config),
          {.tasks = tasks,
           .steps = config.data.train_source_timesteps,
           .streams = streams,
           .family = TaskFamily::of(config.environment),
           .settings = collection_settings(config.environment, config.collection)}};
}

HistorySet read_together(const HistorySetReader& reader, NodeMemory& node, const Ranks& ranks,
                         Console& console) {
  const SharedBytes memory = node.allocate(reader.bytes());
  if (!node.why_not_shared().empty())
    console.notice(fmt::format("each rank has its own copy of the histories: {}", node.why_not_shared()));
  std::optional<HistorySet> histories;
  LongWork(*ranks.communicator, SpokenProgress(console, "reading histories", "tasks"))
      .run(static_cast<int64_t>(memory.own_pieces(reader.tasks())),
           [&](std::atomic<int64_t>& done) { histories = reader.read(memory, [&done] { ++done; }); });
  memory.close();
  return *histories;
}

std::string content_of(const std::filesystem::path& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return path.string();
  return fmt::format("{}/{} {} {}.{}", found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec,
                     found.st_mtim.tv_nsec);
}

std::string identity_of(const HistorySet& histories) {
  return histories.file_checksum().empty() ? histories.digest() : histories.file_checksum();
}

}  // namespace adtrain
