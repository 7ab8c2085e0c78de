#include "run/ImportHistories.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Checksum.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "data/HistoryFileWriter.h"
#include "data/formats/MinariDataset.h"
#include "run/inspect/InspectedHistories.h"
#include "telemetry/Console.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// Minari's own: where it keeps the data sets that it makes and fetches.
fs::path folder_of_minari() {
  if (const char* const set = std::getenv("MINARI_DATASETS_PATH")) return set;
  const char* const home = std::getenv("HOME");
  return fs::path(home == nullptr ? "" : home) / ".minari" / "datasets";
}

/// A path, or the name of a data set under Minari's own folder.
fs::path located(const std::string& name) {
  std::error_code unreadable;
  if (MinariDataset::folder_of(name) || fs::exists(name, unreadable)) return name;
  const fs::path own = folder_of_minari();
  if (MinariDataset::folder_of(own / name)) return own / name;
  throw DataError(fmt::format(
      "{}: found neither such a file or folder nor a data set of that name in {}, Minari's own folder "
      "(MINARI_DATASETS_PATH); expected the folder of a Minari data set",
      abridged(name), own.string()));
}

/// "a,b" → a and b, unless there is a path of that very name.
std::vector<std::string> histories_of(const std::string& task) {
  std::error_code unreadable;
  if (fs::exists(task, unreadable)) return {task};
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= task.size();) {
    const size_t comma = std::min(task.find(',', begin), task.size());
    if (comma > begin) names.push_back(task.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return names;
}

/// Data sets that are the histories of one task.
struct ImportedTask {
  std::vector<std::unique_ptr<MinariDataset>> histories;

  const MinariDataset& first() const { return *histories.front(); }
  /// Of each history in the file: as many as the shortest has.
  int64_t steps() const {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const auto& history : histories) least = std::min(least, history->metadata().steps);
    return least;
  }
};

/// Throws where a data set has other spaces than the first, or stores them as other types.
void expect_alike(const MinariDataset& first, const MinariDataset& other) {
  const auto compare = [&](const char* what, const Space& expected, const Space& found,
                           const ColumnType& expected_type, const ColumnType& found_type) {
    if (expected == found && expected_type == found_type) return;
    std::string difference =
        fmt::format("{}, stored as {}, and {} has {}, stored as {}", found.text(), name_of(found_type.type),
                    first.name(), expected.text(), name_of(expected_type.type));
    if (expected_type == found_type && expected.text() == found.text()) {
      difference = fmt::format("{}, and {} has {}", abridged(found.to_json(), 300), first.name(),
                               abridged(expected.to_json(), 300));
    }
    throw DataError(
        fmt::format("{}: its {} space is {}; expected equal ones, as a file has one pair of spaces: import "
                    "it into another file",
                    other.name(), what, difference));
  };
  compare("observation", first.metadata().observation, other.metadata().observation, first.observations(),
          other.observations());
  compare("action", first.metadata().action, other.metadata().action, first.actions(), other.actions());
}

/// The space as an attribute of the file, which HDF5 bounds.
std::string attribute_of(const Space& space, const std::string& name) {
  constexpr size_t kLongest = 60'000;
  std::string text = space.to_json();
  if (text.size() <= kLongest) return text;
  throw DataError(
      fmt::format("{}: the JSON of its space {} takes {} bytes; expected {} at most: a space with "
                  "equal bounds everywhere, or fewer elements",
                  name, space.text(), text.size(), kLongest));
}

class Import {
 public:
  explicit Import(const ImportHistoriesRequest& request)
      : request_(request),
        console_(Console::for_process(true, stderr)),
        arrays_(MinariDataset::column_names(), {.format = {}, .cache_bytes = kCacheBytes}) {}

  void run() {
    expect_free_place();
    open();
    write();
    report();
  }

 private:
  /// An import reads everything once, and neighbours only where a contiguous data set is read by pieces.
  static constexpr size_t kCacheBytes = size_t{4} << 20;

  void expect_free_place() const {
    std::error_code unreadable;
    if (fs::is_directory(request_.out, unreadable)) {
      throw DataError(fmt::format("--out: {} is a folder; expected the name of a file, such as {}",
                                  request_.out.string(), (request_.out / "histories.hdf5").string()));
    }
    if (request_.overwrite || !fs::exists(request_.out, unreadable)) return;
    throw DataError(fmt::format("--out: {} exists already; expected a new file, or --overwrite to replace it",
                                request_.out.string()));
  }

  void open() {
    std::set<std::string> names;
    for (const std::string& given : request_.tasks) {
      ImportedTask& task = tasks_.emplace_back();
      for (const std::string& name : histories_of(given)) {
        task.histories.push_back(std::make_unique<MinariDataset>(located(name), arrays_));
        const MinariDataset& found = *task.histories.back();
        expect_alike(tasks_.front().first(), found);
        if (!names.insert(found.name()).second) {
          throw DataError(
              fmt::format("{}: is called {}, as one before it is; expected each data set once, and other "
                          "names: dataset_id in metadata.json",
                          abridged(name), found.name()));
        }
      }
      if (task.histories.empty())
        throw ConfigError(fmt::format("found the data set '{}'; expected its path or name", given));
    }
  }

  HistorySettings settings() const {
    const MinariDataset& first = tasks_.front().first();
    std::string identity;
    for (const ImportedTask& task : tasks_) {
      for (const auto& history : task.histories) identity += history->identity() + ", ";
      identity += "\n";
    }
    return {{"observation-space", attribute_of(first.metadata().observation, first.name())},
            {"action-space", attribute_of(first.metadata().action, first.name())},
            {"imported_from", "minari"},
            {"data_sets_crc32", checksum_text(identity)},
            {"history_compression", std::to_string(request_.compression)}};
  }

  void write() {
    HistoryFileWriter writer(request_.out, NumberRanges::below(static_cast<int64_t>(tasks_.size())),
                             settings(), request_.compression,
                             request_.overwrite ? ExistingHistories::kReplace : ExistingHistories::kRefuse,
                             HistoryVersion::kAnySpace);
    for (const std::string& damage : writer.damages()) console_.notice(damage + "; it is imported anew");
    const std::vector<int64_t> missing = writer.missing();
    if (missing.size() < tasks_.size()) {
      console_.info(fmt::format("an earlier import is continued: {} of {} tasks were finished",
                                tasks_.size() - missing.size(), tasks_.size()));
    }
    int64_t total = 0, done = 0;
    for (const int64_t task : missing) {
      const ImportedTask& imported = tasks_[static_cast<size_t>(task)];
      total += imported.steps() * static_cast<int64_t>(imported.histories.size());
    }
    {
      Progress progress(console_, "importing", total, "steps");
      for (const int64_t task : missing) {
        const ImportedTask& imported = tasks_[static_cast<size_t>(task)];
        writer.write(task, recorded(imported, [&](int64_t steps) {
                       done += steps;
                       progress.update(done, imported.first().name());
                     }));
      }
    }
    writer.finish();
  }

  RecordedTask recorded(const ImportedTask& task, const std::function<void(int64_t steps)>& listen) {
    const MinariDataset& first = task.first();
    RecordedTask recorded = RecordedTask::sized(first.observations(), first.actions(),
                                                static_cast<int64_t>(task.histories.size()), task.steps());
    for (size_t i = 0; i < task.histories.size(); ++i) {
      const MinariDataset& history = *task.histories[i];
      remark(history, history.read(recorded, static_cast<int64_t>(i), listen), task.steps());
      const auto add = [&](const char* name, const std::optional<double>& score) {
        if (score) recorded.scores.try_emplace(name, *score);
      };
      add("random-score", history.metadata().random_score);
      add("expert-score", history.metadata().expert_score);
    }
    recorded.texts["task"] = first.name();
    if (!first.metadata().environment.empty()) recorded.texts["env-id"] = first.metadata().environment;
    return recorded;
  }

  void remark(const MinariDataset& history, const MinariDataset::Remarks& found, int64_t steps) {
    const std::string& name = history.name();
    if (steps < history.metadata().steps) {
      notices_.push_back(
          fmt::format("{}: its first {} of {} steps are taken, as the histories of one task are equally long",
                      name, grouped(steps), grouped(history.metadata().steps)));
    }
    if (found.unmarked_ends > 0) {
      notices_.push_back(fmt::format(
          "{}: in {} the last step neither terminates nor truncates: it is taken as a truncation", name,
          found.unmarked_ends == 1 ? "1 episode" : fmt::format("{} episodes", grouped(found.unmarked_ends))));
    }
    if (found.early_ends > 0) {
      notices_.push_back(fmt::format(
          "{}: {} before the last of their episode terminate or truncate, first {}: an episode of the "
          "history ends at each of them",
          name, found.early_ends == 1 ? "1 step" : fmt::format("{} steps", grouped(found.early_ends)),
          found.first_early_end));
    }
  }

  void judge(const InspectedHistories& found) {
    std::vector<std::string> still, short_ones;
    for (const TaskProgress& task : found.tasks) {
      const std::string& name = found.source->tasks()[task.task].name;
      if (std::isnan(task.first_tenth) || std::isnan(task.last_tenth)) short_ones.push_back(name);
      if (task.stands_still())
        still.push_back(
            fmt::format("{} ({:.4g} at first, {:.4g} at last)", name, task.first_tenth, task.last_tenth));
    }
    if (!short_ones.empty()) {
      notices_.push_back(
          fmt::format("too few episodes to tell whether returns rise: {}", abridged(join(short_ones, "; "))));
    }
    if (still.empty()) return;
    notices_.push_back(fmt::format(
        "returns do not rise from episode to episode: {}. Minari does not promise that episodes lie in the "
        "order in which an agent learnt, and Algorithm Distillation imitates learning. Import what an agent "
        "writes while it learns (minari.DataCollector around its environment), and leave these out",
        abridged(join(still, "; "), 400)));
  }

  void report() {
    const InspectedHistories found =
        InspectedHistories::of(request_.out, {.format = HistoryFormat::kAdtrain}, 0, console_);
    judge(found);
    if (request_.json) {
      nlohmann::ordered_json document = found.json();
      document["notices"] = notices_;
      print_answer(document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
      return;
    }
    std::string text = found.text();
    for (const std::string& notice : notices_) text += fmt::format("notice: {}\n", notice);
    print_answer(text);
  }

  const ImportHistoriesRequest& request_;
  Console console_;
  HistoryArrays arrays_;
  std::vector<ImportedTask> tasks_;
  std::vector<std::string> notices_;
};

}  // namespace

ExitCode import_histories(const ImportHistoriesRequest& request) {
  Import(request).run();
  return ExitCode::kDone;
}

}  // namespace adtrain
