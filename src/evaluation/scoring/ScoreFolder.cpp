#include "evaluation/scoring/ScoreFolder.h"

#include <fmt/format.h>

#include "base/Checksum.h"
#include "base/Error.h"
#include "base/File.h"
#include "base/NearestPath.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kTable = "scores.npy";
constexpr const char* kText = "scores.csv";
constexpr const char* kSummary = "summary.json";

std::string read(const fs::path& file) {
  if (!fs::exists(file)) {
    throw DataError(fmt::format("{} does not exist; expected a folder that adtrain score has written{}",
                                file.string(), nearest_path(file.parent_path())));
  }
  return read_file(file);
}

Scores from_summary(const ordered_json& summary) {
  Scores scores;
  scores.scored = summary.at("scored");
  scores.histories = summary.at("histories");
  for (const ordered_json& task : summary.at("tasks"))
    scores.tasks.push_back({task.at("task"), task.at("name"), task.at("trained")});
  const ordered_json& part = summary.at("part");
  scores.shard = ScoreShard::parse(part.at("shard"));
  scores.places = {part.at("first"), part.at("end")};
  scores.windows = part.at("windows");
  scores.total = part.at("of");
  scores.table = ScoreTable({part.at("action_elements"), part.at("action_is_real")});
  scores.seconds = summary.at("seconds");
  return scores;
}

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

void write_scores(const fs::path& folder, const Scores& scores) {
  fs::remove(folder / kSummary);
  write_file_atomically(folder / kTable, scores.table.npy());
  write_file_atomically(folder / kText, scores.table.csv());
  write_file_atomically(folder / kSummary, scores.summary().dump(2) + "\n");
}

Scores read_scores(const fs::path& folder) {
  const fs::path file = folder / kSummary, table = folder / kTable;
  const std::string text = read(file), npy = read(table);
  try {
    const ordered_json summary = ordered_json::parse(text);
    Scores scores = from_summary(summary);
    if (summary.at("part").at("scores_crc32") != checksum_text(npy)) {
      throw DataError(
          fmt::format("{} is not what {} was written with: the checksum differs; restore it, or "
                      "score this part again",
                      table.string(), file.string()));
    }
    scores.table = ScoreTable::from_npy(scores.table.layout(), npy, table.string());
    if (scores.table.size() == scores.places.size()) return scores;
    throw DataError(fmt::format("{} holds {} samples; expected {}, as {} says; score this part again",
                                table.string(), scores.table.size(), scores.places.size(), file.string()));
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("{}: {}; expected what adtrain score writes: score this part again",
                                file.string(), error.what()));
  } catch (const ConfigError& error) {
    throw DataError(fmt::format("{}: {}", file.string(), error.what()));
  }
}

}  // namespace adtrain
