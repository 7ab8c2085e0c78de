#include "collection/own/FinishedTasks.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Text.h"
#include "data/HistoryFileWriter.h"
#include "data/hdf5/Hdf5Metadata.h"

namespace adtrain {
namespace {

/// Nothing where TASKS end before that number.
std::optional<std::string> name_now(const WorkerHello& hello, int64_t task) {
  if (!hello.tasks) return fmt::format("{}", task);
  if (task >= std::ssize(*hello.tasks)) return std::nullopt;
  return (*hello.tasks)[static_cast<size_t>(task)];
}

std::string shown(const std::string& name) {
  constexpr size_t kMost = 40;
  return fmt::format("'{}'", abridged(name, kMost));
}

}  // namespace

FinishedTasks read_finished(const std::filesystem::path& histories, const NumberRanges& tasks) {
  Hdf5Metadata metadata;
  FinishedTasks finished;
  for (const int64_t task : tasks.numbers()) {
    const nlohmann::json attributes =
        metadata.attributes(HistoryFileWriter::task_file(histories, task).string(), fmt::format("{}", task));
    const auto name = attributes.find("task"), score = attributes.find("expert-score");
    FinishedTask& found = finished[task];
    if (name != attributes.end() && name->is_string()) found.name = *name;
    if (score != attributes.end() && score->is_number()) found.final_return = *score;
  }
  return finished;
}

std::vector<std::string> renamed(const FinishedTasks& finished, const WorkerHello& hello) {
  std::vector<std::string> lines;
  for (const auto& [task, found] : finished) {
    const std::string before = found.name.value_or(fmt::format("{}", task));
    const std::optional<std::string> now = name_now(hello, task);
    if (before == now) continue;
    lines.push_back(
        fmt::format("task {} was {} and is {}", task, shown(before), now ? shown(*now) : "not there"));
  }
  return lines;
}

}  // namespace adtrain
