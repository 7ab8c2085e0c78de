#include "data/formats/VintixHistories.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/File.h"
#include "base/NearestPath.h"
#include "base/NumberRanges.h"
#include "base/Text.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kDeepest = 3;  ///< domain, task, and the folder that a zip archive adds

/// Vintix II's pages and its loader name the demonstrator's action in three ways.
const std::vector<ColumnName>& column_names() {
  static const std::vector<ColumnName> names = {
      {ColumnKind::kObservations, "proprio_observation"},
      {ColumnKind::kActions, "action"},
      {ColumnKind::kRewards, "reward"},
      {ColumnKind::kStepNumbers, "step_num"},
      {ColumnKind::kExpertActions, "demonstrator_action"},
      {ColumnKind::kExpertActions, "demonstrator_actions"},
      {ColumnKind::kExpertActions, "expert_action"},
  };
  return names;
}

bool is_history(const fs::directory_entry& entry) {
  const std::string extension = entry.path().extension();
  std::error_code unreadable;
  return (extension == ".h5" || extension == ".hdf5") && entry.is_regular_file(unreadable);
}

/// Those in a task's folder, in order of their names; none where there is no such folder.
std::vector<fs::path> histories_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    if (is_history(entry)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

/// The folders that hold HDF5 files, with these, all in order of their names.
using TaskFolders = std::map<fs::path, std::vector<fs::path>>;

TaskFolders task_folders(const fs::path& root) {
  TaskFolders folders;
  auto entries = fs::recursive_directory_iterator(
      root, fs::directory_options::skip_permission_denied | fs::directory_options::follow_directory_symlink);
  for (const auto& entry : entries) {
    if (entries.depth() >= kDeepest) entries.disable_recursion_pending();
    if (is_history(entry)) folders[entry.path().parent_path()].push_back(entry.path());
  }
  for (auto& [folder, files] : folders) std::ranges::sort(files);
  return folders;
}

/// What TASK.json says; an empty object where there is none.
json description_of(const fs::path& folder) {
  const fs::path file = folder / (folder.filename().string() + ".json");
  std::error_code unreadable;
  if (!fs::is_regular_file(file, unreadable)) return json::object();
  json read = json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  if (read.is_object()) return read;
  throw DataError(
      fmt::format("{}: is no JSON object; expected task_name, observation_shape and action_dim, as "
                  "Vintix writes them",
                  file.string()));
}

/// Throws where the JSON gives a row another length than the file does.
void expect_length(const fs::path& folder, const char* key, const json& said, const ColumnType& column) {
  if (said.is_null()) return;
  const int64_t found = column.row.empty() ? 1 : column.row.front();
  if (said.is_number_integer() && said.get<int64_t>() == found) return;
  throw DataError(fmt::format("{}: its JSON says {} {}; expected {}, as the {} in its files have",
                              folder.string(), key, abridged(said.dump()), found, name_of(column.kind)));
}

Space box_of(const ColumnType& column) {
  constexpr double kUnbounded = std::numeric_limits<double>::infinity();
  return Space::box(column.row, {-kUnbounded}, {kUnbounded}, column.type);
}

json at_or_null(const json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object.at(key) : json();
}

}  // namespace

std::string VintixHistories::Piece::name() const {
  return fmt::format("{}-{}", first, last);
}

VintixHistories::VintixHistories(const HistorySourceOptions& options) : arrays_(column_names(), options) {}

std::unique_ptr<VintixHistories> VintixHistories::open(const fs::path& folder,
                                                       const HistorySourceOptions& options,
                                                       std::string& found) {
  if (options.format.value_or(HistoryFormat::kVintix) != HistoryFormat::kVintix) return nullptr;
  const TaskFolders folders = task_folders(folder);
  if (folders.empty()) {
    found = "a folder without files *.h5";
    return nullptr;
  }
  std::unique_ptr<VintixHistories> source(new VintixHistories(options));
  for (const auto& [task, files] : folders) {
    const bool in_a_domain = task != folder && task.parent_path() != folder;
    source->add_task(task, in_a_domain ? task.parent_path().filename().string() : "", files);
  }
  return source;
}

std::unique_ptr<VintixHistories> VintixHistories::open_listed(const fs::path& list,
                                                              const HistorySourceOptions& options,
                                                              std::string& found) {
  if (options.format.value_or(HistoryFormat::kVintix) != HistoryFormat::kVintix) {
    found = "one of Vintix's lists of tasks";
    return nullptr;
  }
  std::unique_ptr<VintixHistories> source(new VintixHistories(options));
  for (const ListedTask& listed : read_listed_tasks(list, options.list_folder)) source->add_listed(listed);
  if (!source->tasks_.empty()) return source;
  found = "a list of tasks of which none has histories";
  return nullptr;
}

void VintixHistories::add_listed(const ListedTask& listed) {
  const std::vector<fs::path> files = histories_in(listed.folder);
  if (files.empty() && listed.trained) {
    std::error_code unreadable;
    const bool is_there = fs::exists(listed.folder, unreadable);
    throw DataError(
        fmt::format("{}: path: {} {}; expected a folder with the task's histories (*.h5): paths are relative "
                    "to traj_dir, "
                    "as to Vintix's data_dir{}",
                    listed.place, listed.folder.string(), is_there ? "holds no file *.h5" : "does not exist",
                    is_there ? "" : nearest_path(listed.folder)));
  }
  if (files.empty()) {
    TaskHistories& task = unrecorded_.emplace_back();
    task.name = listed.name;
    task.attributes = listed.attributes;
    task.attributes["domain"] = listed.group;
    task.trained = false;
    return;
  }
  TaskHistories& task = add_task(listed.folder, listed.group, files);
  task.name = listed.name;
  task.trained = listed.trained;
  for (const auto& [name, value] : listed.attributes) task.attributes[name] = value;
}

std::vector<fs::path> VintixHistories::files() const {
  std::vector<fs::path> files;
  for (const std::vector<Trajectory>& of_task : trajectories_) {
    for (const Trajectory& trajectory : of_task) files.emplace_back(trajectory.path);
  }
  return files;
}

TaskHistories& VintixHistories::add_task(const fs::path& folder, const std::string& domain,
                                         const std::vector<fs::path>& files) {
  TaskHistories task;
  task.number = static_cast<int64_t>(tasks_.size());
  task.name = folder.filename().string();
  std::vector<Trajectory> trajectories;
  for (const fs::path& file : files) {
    trajectories.push_back(trajectory_of(file));
    task.steps.push_back(trajectories.back().pieces.back().last + 1);
  }
  if (!domain.empty()) task.attributes["domain"] = domain;
  task.group = group_of(folder, domain, trajectories.front(), task);
  tasks_.push_back(std::move(task));
  trajectories_.push_back(std::move(trajectories));
  return tasks_.back();
}

VintixHistories::Trajectory VintixHistories::trajectory_of(const fs::path& file) {
  Trajectory trajectory{file.string(), {}};
  for (const std::string& name : arrays_.metadata().names(trajectory.path, "/")) {
    const std::optional<NumberRange> range = NumberRange::parse(name);
    const Piece piece{range ? range->first : 0, range ? range->last : -1};
    if (!range || piece.last < piece.first || piece.name() != name) {
      throw DataError(
          fmt::format("{}: found a group '{}'; expected groups named by their first and last step, as "
                      "0-9999 (a folder is read as Vintix's: files of other formats are named one by one, or "
                      "as FOLDER/*.hdf5)",
                      trajectory.path, abridged(name, 60)));
    }
    trajectory.pieces.push_back(piece);
  }
  std::ranges::sort(trajectory.pieces, {}, &Piece::first);
  int64_t next = 0;
  for (const Piece& piece : trajectory.pieces) {
    if (piece.first != next) {
      throw DataError(
          fmt::format("{}: found group {} where step {} is next; expected groups without gaps from "
                      "step 0 on",
                      trajectory.path, piece.name(), next));
    }
    next = piece.last + 1;
  }
  if (trajectory.pieces.empty())
    throw DataError(fmt::format("{}: found no group; expected groups of steps, as 0-9999", trajectory.path));
  return trajectory;
}

/// The task's group of spaces, by its first file: an earlier one, or a new one.
size_t VintixHistories::group_of(const fs::path& folder, const std::string& domain, const Trajectory& first,
                                 TaskHistories& task) {
  SpaceGroup group{domain, {}, {}, {}, {}};
  for (const auto& [kind, array] : *arrays_.group(first.path, first.pieces.front().name()))
    group.columns.push_back(column_type_of(kind, *array, 1));
  const ColumnType* const observations = group.find(ColumnKind::kObservations);
  const ColumnType* const actions = group.find(ColumnKind::kActions);
  if (observations == nullptr || actions == nullptr || group.find(ColumnKind::kRewards) == nullptr) {
    throw DataError(
        fmt::format("{}: group {} lacks one of proprio_observation, action and reward; expected "
                    "Vintix's data sets",
                    first.path, first.pieces.front().name()));
  }
  const json said = description_of(folder);
  const json shape = at_or_null(at_or_null(said, "observation_shape"), "proprio");
  expect_length(folder, "observation_shape", shape.is_array() && shape.size() == 1 ? shape[0] : shape,
                *observations);
  expect_length(folder, "action_dim", at_or_null(said, "action_dim"), *actions);
  for (const auto& [key, value] : said.items()) {
    if (value.is_string() || value.is_number())
      task.attributes[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  if (task.attributes.contains("task_name")) task.name = task.attributes.at("task_name");
  group.observation = box_of(*observations);
  group.action = box_of(*actions);
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].name == group.name && groups_[i].columns == group.columns) return i;
  }
  groups_.push_back(std::move(group));
  return groups_.size() - 1;
}

void VintixHistories::read_columns(size_t task, size_t history, int64_t first, int64_t count,
                                   const ColumnKinds& kinds, HistoryWindow& window) const {
  const Trajectory& trajectory = trajectories_.at(task).at(history);
  prepare(window, groups_[tasks_[task].group].columns, kinds, count);
  auto piece = std::ranges::upper_bound(trajectory.pieces, first, {}, &Piece::first);
  if (piece != trajectory.pieces.begin()) --piece;
  std::vector<ArrayPart> parts;
  for (; piece != trajectory.pieces.end() && piece->first < first + count; ++piece) {
    const auto arrays = arrays_.group(trajectory.path, piece->name());
    const int64_t begin = std::max(first, piece->first), end = std::min(first + count, piece->last + 1);
    for (Column& column : window.columns) {
      ArrayPart part;
      part.array =
          arrays_.expect(*arrays, column.type, {piece->last - piece->first + 1},
                         fmt::format("{}: group {}", trajectory.path, piece->name()), "fetch the file again");
      part.first.assign(part.array->shape.size(), 0);
      part.first.front() = begin - piece->first;
      part.count = {end - begin};
      part.count.insert(part.count.end(), column.type.row.begin(), column.type.row.end());
      part.to = column.bytes.data() + static_cast<size_t>(begin - first) * column.type.row_bytes();
      parts.push_back(std::move(part));
    }
  }
  arrays_.read(parts);
}

}  // namespace adtrain
