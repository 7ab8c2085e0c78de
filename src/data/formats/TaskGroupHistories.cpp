#include "data/formats/TaskGroupHistories.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/Error.h"
#include "base/NumberRanges.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using nlohmann::json;

const std::vector<ColumnName>& column_names() {
  static const std::vector<ColumnName> names = {
      {ColumnKind::kObservations, "states"},
      {ColumnKind::kActions, "actions"},
      {ColumnKind::kRewards, "rewards"},
      {ColumnKind::kNextObservations, "next_states"},
      {ColumnKind::kEnds, "dones"},
      {ColumnKind::kTerminations, "terminations"},
      {ColumnKind::kTruncations, "truncations"},
      {ColumnKind::kStepNumbers, "step_num"},
      {ColumnKind::kExpertActions, "expert_actions"},
      {ColumnKind::kExpertActions, "optimal_actions"},  // of our version 1
  };
  return names;
}

constexpr const char* kFormatAttribute = "adtrain-format";
constexpr const char* kGroupAttribute = "group";
constexpr const char* kRuleset = "ruleset-id";  ///< of XLand, which numbers tasks by it
constexpr int64_t kNewestVersion = 2;

/// An attribute as a text; "" where it is not there.
std::string text_of(const json& attributes, const char* name) {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

bool is_task(const std::string& name) {
  const auto number = NumberRange::parse(name);
  return number && std::to_string(number->first) == name;
}

constexpr size_t kShown = 5;  ///< names in a message

/// The first ones, in quotes.
std::string first_of(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i)
    shown.push_back(fmt::format("'{}'", abridged(names[i], 40)));
  return join(shown, ", ");
}
std::string and_more(const std::vector<std::string>& names) {
  return names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "";
}

std::string words_for(const std::vector<std::string>& names) {
  if (names.empty()) return "an HDF5 file without groups";
  return fmt::format("an HDF5 file with {} in its root{}", first_of(names), and_more(names));
}

/// Other groups may stand beside those of tasks, but one that holds a task's columns is a task under a wrong
/// name, which would be missed. Throws DataError that names such groups; `next` is a number that is free.
void refuse_misnamed(Hdf5Metadata& metadata, const std::string& path, const std::vector<std::string>& others,
                     int64_t next) {
  const std::vector<std::string> misnamed =
      metadata.groups_with(path, others, {"states", "actions", "rewards"});
  if (misnamed.empty()) return;
  throw DataError(
      fmt::format("{}: found {} {}{} with columns of a task; expected plain numbers as the names of tasks' "
                  "groups: 0, 1, …; rename each, as h5py does with file.move('{}', '{}'), and let its "
                  "attribute task say what it is called",
                  path, misnamed.size() == 1 ? "a group" : "the groups", first_of(misnamed),
                  and_more(misnamed), abridged(misnamed.front(), 40), next));
}

/// The extent of an axis; 0 where there is none.
int64_t extent_of(const Hdf5Metadata::Surveyed& surveyed, size_t axis) {
  return surveyed.shape && axis < surveyed.shape->size() ? surveyed.shape->at(axis) : 0;
}

/// Throws where a space contradicts the rows that it describes.
void expect_agreement(const std::optional<Space>& space, const ColumnType* column, const std::string& path,
                      const char* attribute) {
  if (!space || column == nullptr || space->shape == column->row) return;
  throw DataError(fmt::format("{}: attribute {} says {}; expected the shape of the rows in the file, ({})",
                              path, attribute, space->text(), fmt::join(column->row, ", ")));
}

}  // namespace

const char* dataset_name(ColumnKind kind) {
  return std::ranges::find(column_names(), kind, &ColumnName::kind)->dataset;
}

TaskGroupHistories::TaskGroupHistories(std::string path, std::vector<std::string> names,
                                       const HistorySourceOptions& options)
    : path_(std::move(path)), names_(std::move(names)), arrays_(column_names(), options) {}

std::unique_ptr<TaskGroupHistories> TaskGroupHistories::open(const std::filesystem::path& file,
                                                             const HistorySourceOptions& options,
                                                             std::string& found) {
  const std::string path = file.string();
  HistorySourceOptions shared = options;
  if (!shared.files) shared.files = std::make_shared<HistoryFiles>(options.cache_bytes);
  Hdf5Metadata& metadata = shared.files->metadata;
  std::vector<std::string> names = metadata.names(path, "/");
  found = words_for(names);
  const auto misfits = std::ranges::stable_partition(names, is_task);
  const std::vector<std::string> others(misfits.begin(), misfits.end());
  names.erase(misfits.begin(), misfits.end());
  std::ranges::sort(names, {}, [](const std::string& name) { return std::stoll(name); });
  const json root = metadata.attributes(path, "/");
  if (root.contains(kFormatAttribute))
    refuse_misnamed(metadata, path, others, names.empty() ? 0 : std::stoll(names.back()) + 1);
  if (names.empty()) return nullptr;
  std::unique_ptr<TaskGroupHistories> source(new TaskGroupHistories(path, std::move(names), shared));
  if (!source->recognise(options, root, found)) return nullptr;
  source->survey();
  source->describe_spaces(root);
  return source;
}

/// By what the root and the first task say. Where it is of another format, `found` says so.
bool TaskGroupHistories::recognise(const HistorySourceOptions& options, const json& root,
                                   std::string& found) {
  const std::string& first = names_.front();
  const auto columns = arrays_.group(path_, first);
  for (const ColumnKind kind : {ColumnKind::kObservations, ColumnKind::kActions, ColumnKind::kRewards}) {
    if (columns->contains(kind)) continue;
    const std::string slip = arrays_.nearly(kind, path_, first);
    found += fmt::format(" without {} in group {}{}{}", name_of(kind), first, slip.empty() ? "" : ": ", slip);
    return false;
  }
  const bool versioned = root.contains(kFormatAttribute);
  const bool next_states = columns->contains(ColumnKind::kNextObservations);
  const bool ruleset = !versioned && arrays_.metadata().attributes(path_, first).contains(kRuleset);
  // A file may bear the marks of XLand and of version 1; then version 1 is taken, unless XLand is expected.
  const bool xland = ruleset && !next_states, version1 = next_states && !ruleset;
  if (!options.format && !versioned && !next_states && !xland) {
    found += fmt::format(
        " without next_states in group {}, as version 1 of adtrain has them, its attribute "
        "{}, as XLand has it, and the attribute {} of the root, as version 2 has it",
        first, kRuleset, kFormatAttribute);
    return false;
  }
  format_ = options.format.value_or(xland ? HistoryFormat::kXland : HistoryFormat::kAdtrain);
  const bool ours = format_ == HistoryFormat::kAdtrain, xlands = format_ == HistoryFormat::kXland;
  if (versioned && !ours) {
    found = fmt::format("adtrain version {} (the attribute {} of the root)",
                        abridged(text_of(root, kFormatAttribute)), kFormatAttribute);
    return false;
  }
  if (version1 && !ours) {
    found = fmt::format("adtrain version 1 (next_states in group {})", first);
    return false;
  }
  if (xland && !xlands) {
    found = fmt::format("xland (the attribute {} of group {})", kRuleset, first);
    return false;
  }
  if (!ours && !xlands) {
    found += " with tasks in its root";
    return false;
  }
  stream_first_ = xlands;
  if (versioned) read_version(root);
  description_ =
      fmt::format("{}one group a task, {} first", xlands ? "" : fmt::format("version {}, ", version_),
                  stream_first_ ? "stream" : "time");
  return true;
}

void TaskGroupHistories::read_version(const json& root) {
  const std::string version = text_of(root, kFormatAttribute);
  if (version != std::to_string(kNewestVersion)) {
    throw DataError(fmt::format("{}: attribute {} is {}; expected {}, the newest that this adtrain reads",
                                path_, kFormatAttribute, abridged(version), kNewestVersion));
  }
  version_ = kNewestVersion;
  const std::string axes = root.contains("axes") ? text_of(root, "axes") : "time,stream";
  if (axes != "time,stream" && axes != "stream,time") {
    throw DataError(fmt::format("{}: attribute axes is '{}'; expected 'time,stream' or 'stream,time'", path_,
                                abridged(axes)));
  }
  stream_first_ = axes == "stream,time";
  axes_said_ = root.contains("axes");
}

std::string TaskGroupHistories::doubt(size_t task) const {
  constexpr int64_t kFar = 4;
  const std::vector<int64_t>& steps = tasks_.at(task).steps;
  if (axes_said_ || kFar * steps.front() > std::ssize(steps)) return "";
  return fmt::format(
      "; the root has no attribute axes, which then is time,stream, and {} steps of {} streams look as if "
      "streams came first: if they do, set it, as h5py does with file.attrs['axes'] = 'stream,time'",
      steps.front(), steps.size());
}

bool TaskGroupHistories::stream_first(ColumnKind kind) const {
  const bool optimal_actions = kind == ColumnKind::kExpertActions && version_ == 1;  // always so
  return stream_first_ || optimal_actions;
}

void TaskGroupHistories::survey() {
  const std::vector<Hdf5Metadata::Surveyed> found = arrays_.metadata().survey(path_, names_, "actions");
  tasks_.reserve(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    tasks_.push_back(task_of(names_[i], found[i]));
    tasks_.back().group = group_of(names_[i], tasks_.back());
  }
  if (format_ == HistoryFormat::kXland) refuse_equal_rulesets();
}

void TaskGroupHistories::refuse_equal_rulesets() const {
  using What = std::tuple<std::string, std::string, std::string>;  // benchmark, environment, ruleset
  std::map<What, size_t> known;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const auto said = [&](const char* name) {
      const auto found = tasks_[i].attributes.find(name);
      return found == tasks_[i].attributes.end() ? "" : found->second;
    };
    if (said(kRuleset).empty()) continue;
    const auto [other, is_new] = known.emplace(What{said("benchmark-id"), said("env-id"), said(kRuleset)}, i);
    if (is_new) continue;
    throw DataError(fmt::format(
        "{}: groups {} and {} both are task '{}'; expected each benchmark-id, env-id and {} once: leave one "
        "out, or make them histories of one group",
        path_, names_[other->second], names_[i], abridged(tasks_[i].name), kRuleset));
  }
}

size_t TaskGroupHistories::group_of(const std::string& name, const TaskHistories& task) {
  const auto said = task.attributes.find(kGroupAttribute);
  const std::string group = version_ < 2 || said == task.attributes.end() ? "" : said->second;
  const auto known = std::ranges::find(spaces_, group, &SpaceGroup::name);
  if (known != spaces_.end()) return static_cast<size_t>(known - spaces_.begin());
  SpaceGroup made;
  made.name = group;
  const auto arrays = arrays_.group(path_, name);
  for (const ColumnKind kind : {ColumnKind::kObservations, ColumnKind::kActions, ColumnKind::kRewards}) {
    if (arrays->contains(kind)) continue;
    const std::string slip = arrays_.nearly(kind, path_, name);
    throw DataError(fmt::format("{}: group {} has no {}; expected states, actions and rewards{}{}", path_,
                                name, name_of(kind), slip.empty() ? "" : "; ", slip));
  }
  for (const auto& [kind, array] : *arrays) made.columns.push_back(column_type_of(kind, *array, 2));
  spaces_.push_back(std::move(made));
  return spaces_.size() - 1;
}

TaskHistories TaskGroupHistories::task_of(const std::string& name,
                                          const Hdf5Metadata::Surveyed& surveyed) const {
  // Bounds that only damage exceeds keep sums over tasks from overflowing.
  constexpr int64_t kMostStreams = int64_t{1} << 16, kMostSteps = int64_t{1} << 40;
  const int64_t streams = extent_of(surveyed, stream_first_ ? 0 : 1);
  const int64_t steps = extent_of(surveyed, stream_first_ ? 1 : 0);
  if (streams < 1 || streams > kMostStreams || steps < 1 || steps > kMostSteps / streams) {
    throw DataError(fmt::format(
        "{}: data set {}/actions {}; expected shape ({}, …), up to {} streams", path_, name,
        surveyed.shape ? fmt::format("has shape ({})", fmt::join(*surveyed.shape, ", ")) : "is missing",
        stream_first_ ? "streams, steps" : "steps, streams", kMostStreams));
  }
  TaskHistories task;
  task.number = std::stoll(name);
  task.name = "task " + name;
  task.steps.assign(static_cast<size_t>(streams), steps);
  for (const auto& [key, value] : surveyed.attributes.items())
    task.attributes[key] = value.is_string() ? value.get<std::string>() : value.dump();
  const json& attributes = surveyed.attributes;
  if (attributes.contains("task")) task.name = text_of(attributes, "task");
  const bool by_ruleset = format_ == HistoryFormat::kXland && attributes.contains(kRuleset);
  if (by_ruleset && attributes.at(kRuleset).is_number_integer()) {
    task.number = attributes.at(kRuleset);
    task.name = fmt::format("{} ruleset {}", text_of(attributes, "env-id"), task.number);
  }
  return task;
}

void TaskGroupHistories::describe_spaces(const json& root) {
  SpaceGroup& group = spaces_.front();
  const ColumnType* const observations = group.find(ColumnKind::kObservations);
  if (format_ == HistoryFormat::kXland) {
    constexpr int64_t kTiles = 13, kColours = 12, kActions = 6;  // xland-minigrid 0.8
    group.observation = Space::multi_discrete(observations->row, {kTiles * kColours});
    group.packed_digits = {kTiles, kColours};
    group.action = Space::discrete(kActions);
  } else if (version_ == 1) {
    const std::optional<NumberRange> grid = NumberRange::parse(text_of(root, "grid_size"));
    if (grid && grid->first > 0) group.observation = Space::multi_discrete(observations->row, {grid->first});
    group.action = Space::discrete(5);
  } else {
    for (size_t i = 0; i < spaces_.size(); ++i)
      describe_version2(spaces_[i], root, *std::ranges::find(tasks_, i, &TaskHistories::group));
  }
}

/// By what the group's first task says, else by what the root says of all tasks.
void TaskGroupHistories::describe_version2(SpaceGroup& group, const json& root,
                                           const TaskHistories& first) const {
  for (const auto& [attribute, kind, space] :
       {std::tuple{"observation-space", ColumnKind::kObservations, &group.observation},
        std::tuple{"action-space", ColumnKind::kActions, &group.action}}) {
    const auto own = first.attributes.find(attribute);
    const bool is_own = own != first.attributes.end();
    if (!is_own && !root.contains(attribute)) continue;
    const std::string place = is_own ? fmt::format("{}: group {}", path_, first.number) : path_;
    *space = Space::from_json(is_own ? own->second : text_of(root, attribute),
                              fmt::format("{}: attribute {}", place, attribute));
    expect_agreement(*space, group.find(kind), place, attribute);
  }
}

void TaskGroupHistories::read_columns(size_t task, size_t history, int64_t first, int64_t count,
                                      const ColumnKinds& kinds, HistoryWindow& window) const {
  const std::vector<ColumnType>& types = spaces_[tasks_.at(task).group].columns;
  const std::string& name = names_.at(task);
  const auto arrays = arrays_.group(path_, name);
  const int64_t steps = tasks_[task].steps.at(history),
                streams = static_cast<int64_t>(tasks_[task].steps.size());
  prepare(window, types, kinds, count);
  std::vector<ArrayPart> parts;
  for (Column& column : window.columns) {
    const bool by_stream = stream_first(column.type.kind);
    ArrayPart part;
    part.array = arrays_.expect(
        *arrays, column.type, by_stream ? std::vector{streams, steps} : std::vector{steps, streams},
        fmt::format("{}: group {}", path_, name),
        format_ == HistoryFormat::kXland ? "fetch the file again" : "write them in this group, too");
    part.first = {static_cast<int64_t>(history), first};
    part.count = {1, count};
    if (!by_stream) {
      std::swap(part.first[0], part.first[1]);
      std::swap(part.count[0], part.count[1]);
    }
    part.first.resize(part.array->shape.size(), 0);
    part.count.insert(part.count.end(), column.type.row.begin(), column.type.row.end());
    part.to = column.bytes.data();
    parts.push_back(std::move(part));
  }
  arrays_.read(parts);
}

}  // namespace adtrain
