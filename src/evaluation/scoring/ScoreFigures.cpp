#include "evaluation/scoring/ScoreFigures.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {
namespace {

/// Adds samples up.
class Sums {
 public:
  void add(const ActionScore& score) {
    ++samples_;
    if (!std::isfinite(score.loss)) ++not_finite_;
    loss_ += static_cast<double>(score.loss);
    if (std::isnan(score.probability)) return;
    ++of_whole_numbers_;
    probability_ += static_cast<double>(score.probability);
    if (score.rank == 1) ++first_;
  }
  int64_t samples() const { return samples_; }
  ScoreMeans means() const {
    ScoreMeans means;
    means.samples = samples_;
    means.not_finite = not_finite_;
    if (samples_ > 0) means.loss = loss_ / static_cast<double>(samples_);
    if (of_whole_numbers_ == 0) return means;
    means.accuracy = static_cast<double>(first_) / static_cast<double>(of_whole_numbers_);
    means.probability = probability_ / static_cast<double>(of_whole_numbers_);
    return means;
  }

 private:
  int64_t samples_ = 0, not_finite_ = 0, of_whole_numbers_ = 0, first_ = 0;
  double loss_ = 0, probability_ = 0;
};

/// "", where there is no such figure.
std::string text_of(const std::optional<double>& number) {
  return number ? fmt::format("{:.4f}", *number) : "";
}

}  // namespace

nlohmann::ordered_json ScoreMeans::to_json() const {
  nlohmann::ordered_json json = {{"samples", samples}, {"loss", nullptr}};
  if (loss) json["loss"] = *loss;
  if (accuracy) json["accuracy"] = *accuracy;
  if (probability) json["probability"] = *probability;
  if (not_finite > 0) json["not_finite"] = not_finite;
  return json;
}

ScoreFigures ScoreFigures::of(const ScoreTable& table, const std::vector<ScoredWindows::Task>& tasks) {
  std::map<int64_t, size_t> places;
  for (size_t place = 0; place < tasks.size(); ++place) places[tasks[place].number] = place;
  Sums all, trained, held_out;
  std::vector<Sums> by_task(tasks.size());
  for (int64_t row = 0; row < table.size(); ++row) {
    const SampleScore found = table[row];
    const size_t place = places.at(found.task);
    all.add(found.score);
    (tasks[place].trained ? trained : held_out).add(found.score);
    by_task[place].add(found.score);
  }
  ScoreFigures figures;
  figures.all = all.means();
  if (trained.samples() > 0 && held_out.samples() > 0) {
    figures.trained = trained.means();
    figures.held_out = held_out.means();
  }
  for (size_t place = 0; place < tasks.size(); ++place) {
    if (by_task[place].samples() > 0) figures.tasks.emplace_back(tasks[place], by_task[place].means());
  }
  return figures;
}

nlohmann::ordered_json ScoreFigures::to_json() const {
  nlohmann::ordered_json json = all.to_json();
  if (trained) json["trained"] = trained->to_json();
  if (held_out) json["held_out"] = held_out->to_json();
  json["tasks"] = nlohmann::ordered_json::array();
  for (const auto& [task, means] : tasks) {
    nlohmann::ordered_json entry = {{"task", task.number}, {"name", task.name}, {"trained", task.trained}};
    entry.update(means.to_json());
    json["tasks"].push_back(std::move(entry));
  }
  return json;
}

std::vector<std::string> ScoreFigures::table(size_t most_tasks) const {
  constexpr size_t kLongestName = 40;
  std::vector<std::pair<std::string, const ScoreMeans*>> rows;
  for (size_t place = 0; place < std::min(most_tasks, tasks.size()); ++place) {
    const auto& [task, means] = tasks[place];
    rows.emplace_back(abridged(task.name, kLongestName) + (task.trained && held_out ? ", trained on" : ""),
                      &means);
  }
  const std::string others = tasks.size() > most_tasks
                                 ? fmt::format("… and {} more tasks", tasks.size() - most_tasks)
                                 : std::string();
  if (trained) rows.emplace_back("trained on", &*trained);
  if (held_out) rows.emplace_back("held out", &*held_out);
  rows.emplace_back("all", &all);
  size_t width = 4;
  for (const auto& [name, means] : rows) width = std::max(width, name.size());
  std::vector<std::string> lines = {fmt::format("{:<{}}  {:>11}  {:>9}  {:>8}  {:>11}", "task", width,
                                                "samples", "loss", "accuracy", "probability")};
  for (size_t row = 0; row < rows.size(); ++row) {
    if (row == most_tasks && !others.empty()) lines.push_back(others);
    const auto& [name, means] = rows[row];
    lines.push_back(fmt::format("{:<{}}  {:>11}  {:>9}  {:>8}  {:>11}", name, width, means->samples,
                                text_of(means->loss), text_of(means->accuracy), text_of(means->probability)));
  }
  return lines;
}

}  // namespace adtrain
