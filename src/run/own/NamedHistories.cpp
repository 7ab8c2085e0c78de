#include "run/own/NamedHistories.h"

#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/Checksum.h"
#include "base/Error.h"
#include "data/formats/ListedTasks.h"
#include "run/own/HistoryPaths.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<HistorySource> open(const RunConfig& config, const std::vector<fs::path>& paths) {
  HistorySourceOptions options;
  for (const HistoryFormat format : history_formats()) {
    if (config.data.history_format == name_of(format)) options.format = format;
  }
  options.cache_bytes = static_cast<size_t>(config.data.history_cache) << 20;
  options.list_folder = config.data.traj_dir;
  try {
    return HistorySource::open_all(paths, options);
  } catch (const DataError& error) {
    if (paths.size() == 1 && !is_task_list(paths.front())) throw;
    throw DataError(fmt::format("{}: {}", config.place_of("histories"), error.what()));
  }
}

}  // namespace

NamedHistories::NamedHistories(const RunConfig& config)
    : paths_(history_paths(config)),
      name_(name_of_histories(config, paths_)),
      source_(open(config, paths_)) {}

int64_t NamedHistories::number_of(size_t task) const {
  const bool by_group = paths_.size() == 1 && source_->format() == HistoryFormat::kAdtrain;
  return by_group ? source_->tasks()[task].number : static_cast<int64_t>(task);
}

/// Names and sizes, wherever they lie.
std::string NamedHistories::identity_of_files() const {
  const fs::path& path = paths_.front();
  std::string text;
  if (paths_.size() > 1 || is_task_list(path)) {
    for (const fs::path& file : source_->files())
      text += fmt::format("{} {}\n", file.filename().string(), fs::file_size(file));
    return text;
  }
  if (!fs::is_directory(path)) return std::to_string(fs::file_size(path));
  std::set<std::string> files;
  for (const auto& entry :
       fs::recursive_directory_iterator(path, fs::directory_options::follow_directory_symlink)) {
    const std::string extension = entry.path().extension();
    if ((extension == ".h5" || extension == ".hdf5") && entry.is_regular_file())
      files.insert(fmt::format("{} {}\n", fs::relative(entry.path(), path).string(), entry.file_size()));
  }
  for (const std::string& file : files) text += file;
  return text;
}

std::string NamedHistories::identity() const {
  std::string shapes = fmt::format("{} {}\n", source_->format_names(), source_->description());
  for (const SpaceGroup& group : source_->groups()) {
    shapes += fmt::format("{} {} {} {}\n", group.name, group.observation ? group.observation->to_json() : "",
                          group.action ? group.action->to_json() : "", fmt::join(group.packed_digits, ","));
    for (const ColumnType& column : group.columns)
      shapes +=
          fmt::format("{} {} {}\n", name_of(column.kind), name_of(column.type), fmt::join(column.row, ","));
  }
  for (const TaskHistories& task : source_->tasks()) {
    shapes += fmt::format("{} {} {} {}\n", task.name, task.number, task.group, fmt::join(task.steps, ","));
    for (const auto& [name, value] : task.attributes) shapes += fmt::format("{}={}\n", name, value);
  }
  shapes += identity_of_files();

  constexpr size_t kTasksCompared = 64;
  const size_t apart = (source_->tasks().size() + kTasksCompared - 1) / kTasksCompared;
  std::string rows;
  for (size_t task = 0; task < source_->tasks().size(); task += apart) {
    const int64_t steps = source_->tasks()[task].steps.front();
    for (const int64_t step : {int64_t{0}, steps - 1}) {
      for (const Column& column : source_->window(task, 0, step, 1).columns)
        rows.append(column.bytes.begin(), column.bytes.end());
    }
  }
  return checksum_text(shapes) + checksum_text(rows);
}

}  // namespace adtrain
