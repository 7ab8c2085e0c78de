#include "data/formats/HistorySource.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "data/formats/HistoryArrays.h"
#include "data/formats/JoinedHistories.h"
#include "data/formats/ListedTasks.h"
#include "data/formats/MinariDataset.h"
#include "data/formats/TaskGroupHistories.h"
#include "data/formats/VintixHistories.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

std::string kind_of(const fs::path& path) {
  std::error_code unreadable;
  if (!fs::exists(path, unreadable)) return "nothing";
  return fs::is_directory(path, unreadable) ? "a folder" : "neither a file nor a folder";
}

/// Minari's data sets are imported first: says so where the path names one, or a folder that holds some.
void refuse_minari(const fs::path& path) {
  std::optional<fs::path> found;
  if (MinariDataset::folder_of(path)) found = path;
  std::error_code unreadable;
  constexpr int kDeepest = 4;  // namespaces, the data set, data/
  for (fs::recursive_directory_iterator entry(path, unreadable), end; !found && entry != end;
       entry.increment(unreadable)) {
    if (entry.depth() >= kDeepest) entry.disable_recursion_pending();
    const fs::path parent = entry->path().parent_path();
    if (entry->path().filename() == "main_data.hdf5" && MinariDataset::folder_of(entry->path()))
      found = parent.filename() == "data" ? parent.parent_path() : parent;
  }
  if (!found) return;
  throw DataError(fmt::format(
      "{}: {}; these are imported first, not read in place: adtrain import histories {} --out histories.hdf5",
      path.string(), *found == path ? "is a Minari data set" : "holds Minari data sets", found->string()));
}

}  // namespace

const char* name_of(HistoryFormat format) {
  constexpr std::array<const char*, 3> kNames = {"adtrain", "xland", "vintix"};
  return kNames[static_cast<size_t>(format)];
}

const std::vector<HistoryFormat>& history_formats() {
  static const std::vector<HistoryFormat> all = {HistoryFormat::kAdtrain, HistoryFormat::kXland,
                                                 HistoryFormat::kVintix};
  return all;
}

const ColumnType* SpaceGroup::find(ColumnKind kind) const {
  const auto found = std::ranges::find(columns, kind, &ColumnType::kind);
  return found == columns.end() ? nullptr : &*found;
}

std::unique_ptr<HistorySource> HistorySource::open(const fs::path& path,
                                                   const HistorySourceOptions& options) {
  refuse_minari(path);
  std::string found = kind_of(path);
  std::unique_ptr<HistorySource> source;
  std::error_code unreadable;
  if (fs::is_regular_file(path, unreadable)) {
    if (is_task_list(path)) {
      source = VintixHistories::open_listed(path, options, found);
    } else {
      source = TaskGroupHistories::open(path, options, found);
    }
  }
  if (fs::is_directory(path, unreadable)) source = VintixHistories::open(path, options, found);
  if (source) return source;
  throw DataError(fmt::format(
      "{}: found {}; expected {} (docs/history-formats.md)", path.string(), found,
      options.format
          ? fmt::format("histories of the format {}, as history_format or --format says; without it, the "
                        "format is recognised by what is there",
                        name_of(*options.format))
          : "learning histories: an HDF5 file with a group a task, as adtrain and XLand have it, named by a "
            "plain number (0, 1, …), or a folder DOMAIN/TASK/*.h5 of Vintix"));
}

std::unique_ptr<HistorySource> HistorySource::open_all(const std::vector<fs::path>& paths,
                                                       const HistorySourceOptions& options) {
  if (paths.size() == 1) return open(paths.front(), options);
  HistorySourceOptions shared = options;
  if (!shared.files) shared.files = std::make_shared<HistoryFiles>(options.cache_bytes);
  std::vector<JoinedHistories::Part> parts;
  for (const fs::path& path : paths) parts.push_back({path, open(path, shared)});
  return std::make_unique<JoinedHistories>(std::move(parts));
}

void HistorySource::read(size_t task, size_t history, int64_t first, int64_t count, const ColumnKinds& kinds,
                         HistoryWindow& window) const {
  const int64_t steps = tasks().at(task).steps.at(history);
  if (first < 0 || count < 0 || first > steps || count > steps - first) {
    throw std::out_of_range(fmt::format("history {} of {} has {} steps, not {} from {} on", history,
                                        tasks()[task].name, steps, count, first));
  }
  read_columns(task, history, first, count, kinds, window);
}

int64_t HistorySource::total_histories() const {
  int64_t total = 0;
  for (const TaskHistories& task : tasks()) total += static_cast<int64_t>(task.steps.size());
  return total;
}

int64_t HistorySource::total_steps() const {
  int64_t total = 0;
  for (const TaskHistories& task : tasks())
    total = std::accumulate(task.steps.begin(), task.steps.end(), total);
  return total;
}

}  // namespace adtrain
