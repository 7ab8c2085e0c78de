#include "run/figures/ReturnTable.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Terminal.h"
#include "run/figures/RunGroups.h"

namespace adtrain {
namespace {

std::string text_of(const MeanOverSeeds& value, Interval interval) {
  if (value.low == value.high) return fmt::format("{:.2f}", value.mean);
  if (interval == Interval::kStandardError)
    return fmt::format("{:.2f} ± {:.2f}", value.mean, value.high - value.mean);
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", value.mean, value.low, value.high);
}

std::string padded(const std::string& text, int columns) {
  return text + std::string(static_cast<size_t>(std::max(0, columns - columns_of(text))), ' ');
}

nlohmann::ordered_json as_json(const MeanOverSeeds& value) {
  return {{"mean", value.mean}, {"low", value.low}, {"high", value.high}};
}

}  // namespace

ReturnTable ReturnTable::of(const std::vector<RecordedRun>& runs, const FigureContent& content) {
  ReturnTable table;
  table.interval = content.interval;
  for (const RunGroup& group : groups_of(runs, content)) {
    std::vector<double> first, last;
    Row row;
    row.label = group.label;
    for (const size_t member : group.members) {
      const EvaluationSummary summary = runs[member].evaluation(content.evaluation);
      row.runs.push_back(runs[member].name);
      first.push_back(summary.mean.front());
      last.push_back(summary.last10_mean);
    }
    row.first_episode = mean_over_seeds(first, content.interval);
    row.last_ten = mean_over_seeds(last, content.interval);
    if (row.label.empty()) row.label = row.runs.size() == 1 ? row.runs.front() : "all runs";
    table.rows.push_back(std::move(row));
  }
  const auto best = std::ranges::max_element(
      table.rows, [](const Row& a, const Row& b) { return a.last_ten.mean < b.last_ten.mean; });
  table.best = static_cast<size_t>(best - table.rows.begin());
  return table;
}

std::string ReturnTable::text() const {
  std::vector<std::vector<std::string>> lines = {{"", "runs", "episode 1", "last ten episodes"}};
  for (const Row& row : rows) {
    lines.push_back({row.label, std::to_string(row.runs.size()), text_of(row.first_episode, interval),
                     text_of(row.last_ten, interval)});
  }
  std::vector<int> widths(lines.front().size());
  for (const auto& line : lines) {
    for (size_t column = 0; column < line.size(); ++column)
      widths[column] = std::max(widths[column], columns_of(line[column]));
  }
  std::string text;
  for (const auto& line : lines) {
    std::string shown = " ";
    for (size_t column = 0; column < line.size(); ++column)
      shown += " " + padded(line[column], widths[column] + 1);
    shown.erase(shown.find_last_not_of(' ') + 1);
    text += shown + "\n";
  }
  if (rows.size() > 1)
    text += fmt::format("highest return over the last ten episodes: {}\n", rows[best].label);
  return text;
}

std::string ReturnTable::csv() const {
  std::string text =
      "group,n,episode_1_mean,episode_1_low,episode_1_high,last_ten_mean,last_ten_low,last_ten_high\n";
  for (const Row& row : rows) {
    text += fmt::format("{},{},{},{},{},{},{},{}\n", csv_text(row.label), row.runs.size(),
                        row.first_episode.mean, row.first_episode.low, row.first_episode.high,
                        row.last_ten.mean, row.last_ten.low, row.last_ten.high);
  }
  return text;
}

nlohmann::ordered_json ReturnTable::json() const {
  nlohmann::ordered_json list = nlohmann::json::array();
  for (const Row& row : rows) {
    list.push_back({{"label", row.label},
                    {"runs", row.runs},
                    {"episode_1", as_json(row.first_episode)},
                    {"last_ten", as_json(row.last_ten)}});
  }
  return list;
}

}  // namespace adtrain
