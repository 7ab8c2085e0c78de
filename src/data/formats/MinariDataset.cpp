#include "data/formats/MinariDataset.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/File.h"
#include "base/NumberRanges.h"
#include "base/Text.h"
#include "data/formats/ColumnInSpace.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *kDataFile = "main_data.hdf5", *kMetadataFile = "metadata.json";
constexpr const char* kEpisode = "episode_";

std::string group_of(size_t episode) {
  return fmt::format("{}{}", kEpisode, episode);
}

bool is_file(const fs::path& path) {
  std::error_code unreadable;
  return fs::is_regular_file(path, unreadable);
}

/// Whether a metadata.json without a main_data.hdf5 beside it is Minari's: of its other format, or of a data
/// set that was not fetched completely.
bool is_of_minari(const fs::path& metadata) {
  try {
    const json read = json::parse(read_file(metadata), nullptr, /*allow_exceptions=*/false);
    return read.is_object() && read.contains("minari_version");
  } catch (const fs::filesystem_error&) {
    return false;
  }
}

std::string text_of(const fs::path& file) {
  try {
    return read_file(file);
  } catch (const fs::filesystem_error& error) {
    throw DataError(
        fmt::format("{}; expected it beside {}: fetch the data set again", error.what(), kDataFile));
  }
}

/// Whether observations or actions of this space may be stored as JPEG, by the rules of any of Minari's
/// versions.
bool may_be_images(const Space& space) {
  return space.kind == Space::Kind::kBox && space.type == ElementType::kUint8 &&
         (space.shape.size() == 2 || space.shape.size() == 3);
}

}  // namespace

std::optional<fs::path> MinariDataset::folder_of(const fs::path& path) {
  const bool names_a_file = path.filename() == kDataFile || path.filename() == kMetadataFile;
  const fs::path above = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (const fs::path& folder : {path / "data", path, names_a_file ? above : path}) {
    if (!is_file(folder / kMetadataFile)) continue;
    if (is_file(folder / kDataFile) || is_of_minari(folder / kMetadataFile)) return folder;
  }
  return std::nullopt;
}

std::vector<ColumnName> MinariDataset::column_names() {
  return {{ColumnKind::kObservations, "observations"},
          {ColumnKind::kActions, "actions"},
          {ColumnKind::kRewards, "rewards"},
          {ColumnKind::kTerminations, "terminations"},
          {ColumnKind::kTruncations, "truncations"}};
}

MinariDataset::MinariDataset(const fs::path& path, HistoryArrays& arrays) : arrays_(&arrays) {
  const std::optional<fs::path> folder = folder_of(path);
  if (!folder) {
    throw DataError(fmt::format("{}: is no Minari data set; expected a folder with data/{} and data/{} in it",
                                path.string(), kDataFile, kMetadataFile));
  }
  folder_ = *folder;
  file_ = (folder_ / kDataFile).string();
  metadata_ = MinariMetadata::parse(text_of(folder_ / kMetadataFile), (folder_ / kMetadataFile).string());
  if (metadata_.name.empty()) {
    const fs::path absolute = fs::absolute(folder_).lexically_normal();
    metadata_.name = (absolute.filename() == "data" ? absolute.parent_path() : absolute).filename().string();
  }
  if (!is_file(file_)) {
    throw DataError(fmt::format("{}: is missing; expected the episodes of {} there: fetch the data set again",
                                file_, metadata_.name));
  }
  find_episodes();
  find_types();
}

void MinariDataset::find_episodes() {
  std::set<int64_t> numbers;
  for (const std::string& name : arrays_->metadata().names(file_, "/")) {
    if (!name.starts_with(kEpisode)) continue;
    const auto number = NumberRange::parse(std::string_view(name).substr(std::strlen(kEpisode)));
    if (number && group_of(static_cast<size_t>(number->first)) == name) numbers.insert(number->first);
  }
  std::vector<std::string> groups;
  for (int64_t episode = 0; episode < metadata_.episodes; ++episode) {
    if (!numbers.contains(episode)) {
      throw DataError(fmt::format(
          "{}: {} is missing; found {} episodes, expected the {} that {} tells of; the data set is "
          "incomplete: fetch it again",
          file_, group_of(static_cast<size_t>(episode)), numbers.size(), metadata_.episodes, kMetadataFile));
    }
    groups.push_back(group_of(static_cast<size_t>(episode)));
  }
  int64_t steps = 0;
  for (const Hdf5Metadata::Surveyed& surveyed : arrays_->metadata().survey(file_, groups, "actions")) {
    const int64_t found = surveyed.shape && !surveyed.shape->empty() ? surveyed.shape->front() : 0;
    const auto said = surveyed.attributes.find("total_steps");
    const bool contradicts = said != surveyed.attributes.end() && *said != found;
    if (found < 1 || found > metadata_.steps || contradicts) {
      throw DataError(fmt::format(
          "{}: found actions of {} steps, and total_steps {}; expected equal numbers above 0, {} at most; "
          "the data set is damaged: fetch it again",
          place(steps_.size()), found, said == surveyed.attributes.end() ? "missing" : abridged(said->dump()),
          metadata_.steps));
    }
    steps += found;
    steps_.push_back(found);
  }
  if (steps != metadata_.steps) {
    throw DataError(
        fmt::format("{}: found {} steps in {} episodes; expected {}, as {} says; the data set is incomplete: "
                    "fetch it again",
                    file_, steps, steps_.size(), metadata_.steps, kMetadataFile));
  }
}

/// By the first episode, which the others must be like.
void MinariDataset::find_types() {
  const std::map<std::string, json> layouts = arrays_->metadata().layouts(file_, group_of(0));
  for (const auto& [what, space] :
       {std::pair{"observations", &metadata_.observation}, std::pair{"actions", &metadata_.action}}) {
    const auto found = layouts.find(what);
    if (found == layouts.end() || !may_be_images(*space)) continue;
    const json shape = found->second.value("shape", json::array());
    if (shape.size() == space->shape.size() + 1 && found->second.value("type", "") == "uint8") continue;
    throw DataError(fmt::format(
        "{}: the {} are JPEG images of {}, which are not supported; expected plain numbers: make the "
        "data set anew with jpeg_encoding=False, which minari.DataCollector takes",
        place(0), what, space->text()));
  }
  const auto columns = arrays_->group(file_, group_of(0));
  const auto type_of = [&](ColumnKind kind, const Space& space) {
    const auto found = columns->find(kind);
    if (found == columns->end()) {
      throw DataError(fmt::format("{} has no data set of {}; expected {} in each step, as {} says", place(0),
                                  name_of(kind), space.text(), kMetadataFile));
    }
    ColumnType type = column_type_of(kind, *found->second, 1);
    expect_stored_as(space, type, place(0));
    return type;
  };
  observations_ = type_of(ColumnKind::kObservations, metadata_.observation);
  actions_ = type_of(ColumnKind::kActions, metadata_.action);
}

std::string MinariDataset::place(size_t episode) const {
  return fmt::format("{}: {}", file_, group_of(episode));
}

std::string MinariDataset::identity() const {
  std::error_code unreadable;
  return fmt::format("{} {} {} {}", name(), metadata_.episodes, metadata_.steps,
                     fs::file_size(file_, unreadable));
}

/// Reads one episode after the other.
class MinariDataset::EpisodeReading {
 public:
  EpisodeReading(const MinariDataset& dataset, RecordedTask& task, int64_t stream)
      : dataset_(dataset), task_(task), stream_(stream) {}

  /// Reads the first `count` steps of an episode to where step `first` of the history is.
  void read(size_t episode, int64_t first, int64_t count) {
    place_ = dataset_.place(episode);
    group_ = dataset_.arrays_->group(dataset_.file_, group_of(episode));
    const int64_t steps = dataset_.steps_[episode];
    parts_.clear();
    columns_.resize(task_.columns.size());
    add(RecordedTask::kObservations, &dataset_.observations_, steps + 1, count);
    add(RecordedTask::kActions, &dataset_.actions_, steps, count);
    for (const auto column :
         {RecordedTask::kRewards, RecordedTask::kTerminations, RecordedTask::kTruncations})
      add(column, nullptr, steps, count);
    dataset_.arrays_->read(parts_);
    copy_rows(RecordedTask::kObservations, dataset_.metadata_.observation, first);
    copy_rows(RecordedTask::kActions, dataset_.metadata_.action, first);
    copy_rewards(first, count);
    copy_ends(first, count, /*whole=*/count == steps, episode);
  }

  const Remarks& remarks() const { return remarks_; }

 private:
  /// A column whose type is nothing holds one number of any type a step.
  void add(RecordedTask::Place place, const ColumnType* type, int64_t extent, int64_t count) {
    const ColumnKind kind = task_.columns[place].type.kind;
    Column& column = columns_[place];
    const auto found = group_->find(kind);
    column.type = type != nullptr ? *type : ColumnType{kind, ElementType::kFloat64, {}};
    if (type == nullptr && found != group_->end()) column.type.type = found->second->type;
    ArrayPart part;
    part.array = dataset_.arrays_->expect(*group_, column.type, {extent}, place_, "fetch the data set again");
    part.first.assign(part.array->shape.size(), 0);
    part.count = part.array->shape;
    part.count.front() = count;
    column.bytes.resize(static_cast<size_t>(count) * column.type.row_bytes());
    part.to = column.bytes.data();
    parts_.push_back(std::move(part));
  }

  void copy_rows(RecordedTask::Place place, const Space& space, int64_t first) {
    const Column& column = columns_[place];
    if (const auto row = first_outside(column, space)) refuse(column, *row, space.text());
    std::ranges::copy(column.bytes, task_.row(place, stream_, first));
  }

  void copy_rewards(int64_t first, int64_t count) {
    Column narrow{task_.columns[RecordedTask::kRewards].type, {}};
    narrow.bytes.resize(static_cast<size_t>(count) * sizeof(float));
    for (int64_t step = 0; step < count; ++step) {
      const auto reward = static_cast<float>(columns_[RecordedTask::kRewards].number(step));
      std::memcpy(narrow.bytes.data() + static_cast<size_t>(step) * sizeof reward, &reward, sizeof reward);
    }
    if (const auto row = narrow.first_not_finite())
      refuse(columns_[RecordedTask::kRewards], *row, "a finite number of 32 bits");
    std::ranges::copy(narrow.bytes, task_.row(RecordedTask::kRewards, stream_, first));
  }

  /// `whole`: the last of these steps is the episode's last.
  void copy_ends(int64_t first, int64_t count, bool whole, size_t episode) {
    for (int64_t step = 0; step < count; ++step) {
      const bool terminated = columns_[RecordedTask::kTerminations].number(step) != 0;
      bool truncated = columns_[RecordedTask::kTruncations].number(step) != 0;
      const bool last = whole && step + 1 == count;
      if (last && !terminated && !truncated) {
        truncated = true;
        ++remarks_.unmarked_ends;
      }
      if (!last && (terminated || truncated) && ++remarks_.early_ends == 1)
        remarks_.first_early_end = fmt::format("{}, step {}", group_of(episode), step);
      *task_.row(RecordedTask::kTerminations, stream_, first + step) = terminated ? 1 : 0;
      *task_.row(RecordedTask::kTruncations, stream_, first + step) = truncated ? 1 : 0;
    }
  }

  [[noreturn]] void refuse(const Column& column, int64_t step, const std::string& expected) const {
    throw DataError(
        fmt::format("{}: step {} has {} among the {}; expected {}: mend the data set, or leave it out",
                    place_, step, text_of_row(column, step), name_of(column.type.kind), expected));
  }

  const MinariDataset& dataset_;
  RecordedTask& task_;
  int64_t stream_;
  std::string place_;
  std::shared_ptr<const HistoryArrays::Group> group_;
  std::vector<Column> columns_;  ///< of the episode, in the task's order
  std::vector<ArrayPart> parts_;
  Remarks remarks_;
};

MinariDataset::Remarks MinariDataset::read(RecordedTask& task, int64_t stream,
                                           const std::function<void(int64_t steps)>& listen) const {
  EpisodeReading reading(*this, task, stream);
  int64_t next = 0;
  for (size_t episode = 0; episode < steps_.size() && next < task.steps; ++episode) {
    const int64_t count = std::min(steps_[episode], task.steps - next);
    reading.read(episode, next, count);
    next += count;
    listen(count);
  }
  return reading.remarks();
}

}  // namespace adtrain
