#include "evaluation/scoring/ScoreFolder.h"

#include <limits>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/Checksum.h"
#include "base/Error.h"
#include "base/File.h"
#include "base/NearestPath.h"
#include "base/Text.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kTable = "scores.npy";
constexpr const char* kText = "scores.csv";
constexpr const char* kSummary = "summary.json";

constexpr int64_t kMostElements = int64_t{1} << 24;  ///< of an action, as of every space

/// The content of a file in a folder of scores.
std::string read(const fs::path& folder, const char* name) {
  constexpr const char* kExpected = "expected a folder that adtrain score has written";
  if (!fs::exists(folder)) {
    throw DataError(fmt::format("{} does not exist; {}{}", folder.string(), kExpected, nearest_path(folder)));
  }
  if (!fs::is_directory(folder)) {
    throw DataError(fmt::format("{} is a file; {}: name the folder", folder.string(), kExpected));
  }
  if (fs::exists(folder / name)) return read_file(folder / name);
  throw DataError(
      fmt::format("{} holds no complete scoring: {} is not there, as after one that was stopped or has "
                  "failed; {}: score this part again, or name the folders of the parts",
                  folder.string(), name, kExpected));
}

/// `origin`: the file that the value is in.
DataError damaged(const std::string& origin, const char* key, const ordered_json& found,
                  const std::string& expected) {
  return DataError(fmt::format("{}: {} is {}; expected {}: score this part again", origin, key,
                               abridged(found.dump()), expected));
}

/// `origin` names the file in messages.
Scores from_summary(const ordered_json& summary, const std::string& origin) {
  Scores scores;
  scores.scored = summary.at("scored");
  if (!scores.scored.is_object()) throw damaged(origin, "scored", scores.scored, "an object");
  scores.histories = summary.at("histories");
  for (const ordered_json& task : summary.at("tasks"))
    scores.tasks.push_back({task.at("task"), task.at("name"), task.at("trained")});
  const ordered_json& part = summary.at("part");
  const auto number = [&](const char* key, int64_t least, int64_t most) {
    const ordered_json& found = part.at(key);
    const int64_t held = found.is_number_integer() ? found.get<int64_t>() : -1;
    if (held >= least && held <= most) return held;
    throw damaged(origin, key, found, fmt::format("a whole number from {} to {}", least, most));
  };
  scores.shard = ScoreShard::parse(part.at("shard"));
  scores.windows = number("windows", 1, std::numeric_limits<int64_t>::max());
  scores.total = number("of", 1, scores.windows);
  scores.places.end = number("end", 0, scores.total);
  scores.places.first = number("first", 0, scores.places.end);
  scores.table = ScoreTable({number("action_elements", 1, kMostElements), part.at("action_is_real")});
  scores.seconds = summary.at("seconds");
  return scores;
}

/// `table` and `summary`: the files, for messages.
void expect_known_tasks(const Scores& scores, const fs::path& table, const fs::path& summary) {
  std::set<int64_t> known;
  for (const ScoredWindows::Task& task : scores.tasks) known.insert(task.number);
  for (int64_t row = 0; row < scores.table.size(); ++row) {
    const int64_t task = scores.table[row].task;
    if (known.contains(task)) continue;
    throw DataError(fmt::format("{}: row {} is of task {}; expected a task in {}: score this part again",
                                table.string(), row, task, summary.string()));
  }
}

/// Files that are complete under temporary names before any of them takes its own. Those that have not taken
/// theirs are removed: they would only occupy the space that is lacking.
class WaitingFiles {
 public:
  WaitingFiles() = default;
  ~WaitingFiles() {
    std::error_code ignored;
    for (const auto& [temporary, path] : files_) fs::remove(temporary, ignored);
  }
  WaitingFiles(const WaitingFiles&) = delete;
  WaitingFiles& operator=(const WaitingFiles&) = delete;

  void write(const fs::path& path, std::string_view bytes) {
    files_.emplace_back(temporary_beside(path), path);
    write_file(files_.back().first, bytes);
  }
  /// In the order in which they were written.
  void take_their_names() const {
    for (const auto& [temporary, path] : files_) rename_durably(temporary, path);
  }

 private:
  std::vector<std::pair<fs::path, fs::path>> files_;
};

}  // namespace

ordered_json Scores::summary() const {
  ordered_json summary = {{"scored", scored},
                          {"histories", histories},
                          {"part",
                           {{"shard", shard.text()},
                            {"first", places.first},
                            {"end", places.end},
                            {"of", total},
                            {"windows", windows},
                            {"action_elements", table.layout().elements},
                            {"action_is_real", table.layout().real},
                            {"scores_crc32", checksum_text(table.npy())}}}};
  summary.update(figures().to_json());
  summary["seconds"] = seconds;
  summary["samples_per_second"] = seconds > 0 ? static_cast<double>(table.size()) / seconds : 0;
  return summary;
}

bool holds_scores(const fs::path& folder) {
  for (const char* const name : {kSummary, kTable, kText}) {
    if (fs::exists(folder / name)) return true;
  }
  return false;
}

void refuse_to_overwrite(const fs::path& folder, bool overwrite) {
  if (overwrite || !holds_scores(folder)) return;
  throw ConfigError(fmt::format(
      "{} holds scores already; expected a folder without any: name another one, or give --overwrite",
      folder.string()));
}

void write_scores(const fs::path& folder, const Scores& scores, bool overwrite) {
  fs::create_directories(folder);
  WaitingFiles files;
  files.write(folder / kTable, scores.table.npy());
  files.write(folder / kText, scores.table.csv());
  files.write(folder / kSummary, scores.summary().dump(2) + "\n");
  refuse_to_overwrite(folder, overwrite);
  fs::remove(folder / kSummary);  // it must not stand beside scores that are not its own
  files.take_their_names();
}

Scores read_scores(const fs::path& folder) {
  const fs::path file = folder / kSummary, table = folder / kTable;
  const std::string text = read(folder, kSummary), npy = read(folder, kTable);
  try {
    const ordered_json summary = ordered_json::parse(text);
    Scores scores = from_summary(summary, file.string());
    if (summary.at("part").at("scores_crc32") != checksum_text(npy)) {
      throw DataError(
          fmt::format("{} is not what {} was written with: the checksum differs; restore it, or "
                      "score this part again",
                      table.string(), file.string()));
    }
    scores.table = ScoreTable::from_npy(scores.table.layout(), npy, table.string());
    if (scores.table.size() != scores.places.size()) {
      throw DataError(fmt::format("{} holds {} samples; expected {}, as {} says; score this part again",
                                  table.string(), scores.table.size(), scores.places.size(), file.string()));
    }
    expect_known_tasks(scores, table, file);
    return scores;
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("{}: {}; expected what adtrain score writes: score this part again",
                                file.string(), error.what()));
  } catch (const ConfigError& error) {
    throw DataError(fmt::format("{}: {}", file.string(), error.what()));
  }
}

}  // namespace adtrain
