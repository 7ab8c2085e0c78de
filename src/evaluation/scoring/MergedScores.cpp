#include "evaluation/scoring/MergedScores.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "data/WindowFinder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

struct Part {
  fs::path folder;
  Scores scores;
};

/// "samples 4 to 6 of 7", counted from 0.
std::string text_of(const NumberSpan& places, int64_t total) {
  if (places.size() == 1) return fmt::format("sample {} of {}", places.first, total);
  return fmt::format("samples {} to {} of {}", places.first, places.end - 1, total);
}

std::string abridged_value(const nlohmann::ordered_json& object, const std::string& key) {
  return object.contains(key) ? abridged(object[key].dump()) : "absent";
}

/// What a difference in this key means.
const char* meaning_of(const std::string& key) {
  if (key.starts_with("checkpoint")) return "weights";
  if (key.starts_with("network")) return "networks";
  return key.starts_with("histories") ? "histories" : "settings";
}

/// `what`: are others than in the first part, which `difference` shows.
DataError of_other(const char* what, const Part& part, const Part& first, const std::string& difference) {
  return DataError(
      fmt::format("{} is of other {} than {}: {}; expected parts of one scoring: score this part again with "
                  "the others' weights and settings",
                  part.folder.string(), what, first.folder.string(), difference));
}

void expect_same(const Part& part, const Part& first) {
  std::set<std::string> keys;
  for (const Part* const one : {&part, &first}) {
    for (const auto& [key, value] : one->scores.scored.items()) keys.insert(key);
  }
  const auto &found = part.scores.scored, &expected = first.scores.scored;
  const auto expect = [&](const std::string& key) {
    if (found.contains(key) && expected.contains(key) && found[key] == expected[key]) return;
    throw of_other(meaning_of(key), part, first,
                   fmt::format("{} is {}, and there {}", key, abridged_value(found, key),
                               abridged_value(expected, key)));
  };
  const char* const precision = "precision";  // before the weights' digest, which differs with it
  if (keys.contains(precision)) expect(precision);
  std::ranges::for_each(keys, expect);
  const bool alike = part.scores.total == first.scores.total && part.scores.windows == first.scores.windows &&
                     part.scores.table.layout() == first.scores.table.layout();
  if (alike) return;
  throw DataError(fmt::format("{} has {} of {} windows, and {} {} of {}; expected parts of one scoring",
                              part.folder.string(), part.scores.total, part.scores.windows,
                              first.folder.string(), first.scores.total, first.scores.windows));
}

/// Its rows are the windows that these places stand for.
void expect_own_samples(const Part& part) {
  const Scores& scores = part.scores;
  for (int64_t row = 0; row < scores.table.size(); ++row) {
    const int64_t sample = scores.table[row].sample;
    const int64_t expected = spread(scores.places.first + row, scores.total, scores.windows);
    if (sample == expected) continue;
    throw DataError(fmt::format("{}: row {} is sample {}; expected sample {}: score this part again",
                                part.folder.string(), row, sample, expected));
  }
}

/// "; shards 1/4 and 3/4 have them", where the parts are of one number of shards.
std::string shards_missing(const std::vector<Part>& parts) {
  const int64_t count = parts.front().scores.shard.count;
  std::set<int64_t> there;
  for (const Part& part : parts) {
    if (part.scores.shard.count != count) return "";
    there.insert(part.scores.shard.index);
  }
  std::vector<std::string> missing;
  constexpr size_t kMostNamed = 20;
  for (int64_t index = 0; index < count && missing.size() <= kMostNamed; ++index) {
    if (there.contains(index)) continue;
    missing.push_back(missing.size() < kMostNamed ? ScoreShard{index, count}.text() : "…");
  }
  return missing.empty() ? "" : fmt::format("; no part is of --shard {}", join(missing, ", "));
}

/// Sorts the parts by their samples.
void expect_each_sample_once(std::vector<Part>& parts) {
  std::ranges::stable_sort(parts, {}, [](const Part& part) {
    return std::pair(part.scores.places.first, part.scores.places.end);
  });
  const int64_t total = parts.front().scores.total;
  int64_t end = 0;
  const Part* before = nullptr;
  const auto refuse_gap = [&](int64_t first) {
    throw DataError(
        fmt::format("{} are missing{}; expected every part of the scoring: name the folders of "
                    "these parts, or score them",
                    text_of({end, first}, total), shards_missing(parts)));
  };
  for (const Part& part : parts) {
    const NumberSpan& places = part.scores.places;
    if (places.size() == 0) continue;
    if (places.first < end) {
      throw DataError(fmt::format("{} and {} both have {}; expected each sample once: leave one of them out",
                                  before->folder.string(), part.folder.string(),
                                  text_of({places.first, std::min(end, places.end)}, total)));
    }
    if (places.first > end) refuse_gap(places.first);
    end = places.end;
    before = &part;
  }
  if (end < total) refuse_gap(total);
}

std::string text_of(const ScoredWindows::Task& task) {
  return fmt::format("'{}', {}", abridged(task.name), task.trained ? "trained on" : "held out");
}

/// Those of all parts, each once. Throws where two parts know different things of one.
std::vector<ScoredWindows::Task> tasks_of(const std::vector<Part>& parts) {
  std::vector<ScoredWindows::Task> tasks;
  std::map<int64_t, std::pair<const Part*, const ScoredWindows::Task*>> known;
  for (const Part& part : parts) {
    for (const ScoredWindows::Task& task : part.scores.tasks) {
      const auto [place, is_new] = known.try_emplace(task.number, &part, &task);
      const auto& [first, expected] = place->second;
      if (is_new) tasks.push_back(task);
      if (task == *expected) continue;
      throw of_other(
          "tasks", part, *first,
          fmt::format("task {} is {}, and there {}", task.number, text_of(task), text_of(*expected)));
    }
  }
  return tasks;
}

}  // namespace

Scores merged_scores(const std::vector<fs::path>& folders) {
  std::vector<Part> parts;
  for (const fs::path& folder : folders) {
    parts.push_back({folder, read_scores(folder)});
    expect_same(parts.back(), parts.front());
    expect_own_samples(parts.back());
  }
  expect_each_sample_once(parts);
  Scores all = parts.front().scores;
  all.shard = {};
  all.places = {0, all.total};
  all.table = ScoreTable(all.table.layout());
  all.tasks = tasks_of(parts);
  all.seconds = 0;
  for (const Part& part : parts) {
    all.table.append(part.scores.table);
    all.seconds = std::max(all.seconds, part.scores.seconds);
  }
  return all;
}

}  // namespace adtrain
