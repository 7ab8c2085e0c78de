#include "run/figures/Figure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

/// Every run's curve of a figure in metrics.jsonl.
std::vector<Curve> metric_curves(const std::vector<RecordedRun>& runs, const std::string& name) {
  std::vector<Curve> curves;
  for (const RecordedRun& run : runs) {
    std::map<std::string, Curve> metrics = run.metrics();
    const auto found = metrics.find(name);
    if (found == metrics.end()) {
      std::vector<std::string> names = {FigureContent::kReturns};
      for (const auto& [known, curve] : metrics) names.push_back(known);
      const std::string nearest = nearest_name(name, names);
      throw ConfigError(fmt::format("--what: {} has no figure '{}'; expected one of {}{}", run.name,
                                    abridged(name), join(names, ", "),
                                    nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
    }
    curves.push_back(std::move(found->second));
  }
  return curves;
}

Curve curve_of(const EvaluationSummary& summary) {
  Curve curve;
  for (const double mean : summary.mean) {
    curve.x.push_back(std::ssize(curve.x) + 1);
    curve.y.push_back(mean);
  }
  return curve;
}

/// A sentence where evaluations measured different things; empty where they did not.
std::string difference_of(const std::vector<EvaluationSummary>& summaries) {
  std::set<std::string> keys;
  for (const EvaluationSummary& summary : summaries) {
    const auto& first = summaries.front().identity;
    for (const auto& [key, value] : summary.identity.items()) {
      // Seeds only repeat, and other numbers of episodes are told by the line that they shorten.
      if (key == "eval_seed" || key == "episodes") continue;
      if (!first.contains(key) || first[key] != value) keys.insert(key);
    }
    if (first.contains("env_worker") && !summary.identity.contains("env_worker")) keys.insert("env_worker");
  }
  if (keys.empty()) return "";
  return fmt::format("the evaluations are not of the same kind: they differ in {}",
                     join({keys.begin(), keys.end()}, ", "));
}

/// Oracle and random, where they are the same for all runs and known.
void add_references(Figure& figure, const std::vector<EvaluationSummary>& summaries) {
  const EvaluationSummary& first = summaries.front();
  const auto is_same = [&](std::optional<double> EvaluationSummary::*value) {
    return std::ranges::all_of(summaries, [&](const EvaluationSummary& summary) {
      if (!(summary.*value) || !(first.*value))
        return (summary.*value).has_value() == (first.*value).has_value();
      return std::abs(*(summary.*value) - *(first.*value)) < 1e-9;
    });
  };
  if (is_same(&EvaluationSummary::oracle) && is_same(&EvaluationSummary::random_floor)) {
    if (first.oracle) figure.references.push_back({"oracle", *first.oracle});
    if (first.random_floor) figure.references.push_back({"random", *first.random_floor});
  } else {
    figure.notices.emplace_back("oracle and random are not drawn: they are not the same for all runs");
  }
}

/// Reads every run's curve, and puts into the figure what belongs to all.
std::vector<Curve> read_curves(Figure& figure, const std::vector<RecordedRun>& runs,
                               const FigureContent& content) {
  if (content.what != FigureContent::kReturns) {
    figure.x_label = "optimizer step";
    figure.y_label = content.what == "loss"           ? "training loss (nats)"
                     : content.what == "test_loss"    ? "held-out loss (nats)"
                     : content.what == "test_return"  ? "in-context return on held-out tasks"
                     : content.what == "train_return" ? "in-context return on training tasks"
                                                      : content.what;
    std::ranges::replace(figure.y_label, '_', ' ');
    return metric_curves(runs, content.what);
  }
  figure.x_label = "episode in context";
  figure.y_label = "return";
  std::vector<EvaluationSummary> summaries;
  std::vector<Curve> curves;
  std::set<std::string> names;
  for (const RecordedRun& run : runs) {
    summaries.push_back(run.evaluation(content.evaluation));
    curves.push_back(curve_of(summaries.back()));
    names.insert(summaries.back().name);
  }
  figure.evaluations.assign(names.begin(), names.end());
  if (const std::string notice = difference_of(summaries); !notice.empty()) figure.notices.push_back(notice);
  add_references(figure, summaries);
  return curves;
}

std::vector<const Curve*> curves_of(const RunGroup& group, const std::vector<Curve>& curves) {
  std::vector<const Curve*> members;
  for (const size_t member : group.members) members.push_back(&curves[member]);
  return members;
}

/// The mean over a group's curves at those of their points that all have.
FigureLine line_of(const RunGroup& group, const std::vector<RecordedRun>& runs,
                   const std::vector<Curve>& curves, const FigureContent& content) {
  FigureLine line;
  for (const size_t member : group.members) line.runs.push_back(runs[member].name);
  line.label = group.label;
  std::map<int64_t, std::vector<double>> values;
  for (const Curve* curve : curves_of(group, curves)) {
    for (size_t i = 0; i < curve->x.size(); ++i) values[curve->x[i]].push_back(curve->y[i]);
  }
  for (const auto& [x, at_x] : values) {
    if (at_x.size() < group.members.size()) continue;
    line.x.push_back(x);
    line.y.push_back(mean_over_seeds(at_x, content.interval));
  }
  if (line.x.empty()) {
    throw DataError(fmt::format("{} have no point of {} in common; --each draws each run alone",
                                join(line.runs, ", "), content.what));
  }
  return line;
}

/// Names for a legend: of the folders alone, where those tell the runs apart.
std::vector<std::string> short_names(const std::vector<RecordedRun>& runs) {
  std::vector<std::string> names, full;
  for (const RecordedRun& run : runs) {
    names.push_back(abridged(run.folder.root.filename().string()));
    full.push_back(run.name);
  }
  const bool distinct = std::set<std::string>(names.begin(), names.end()).size() == names.size();
  return distinct ? names : full;
}

/// Says so where a line does not show all that its runs hold.
void tell_of_common_part(Figure& figure, const FigureLine& line, const std::vector<const Curve*>& curves) {
  if (std::ranges::all_of(curves, [&](const Curve* curve) { return curve->x.size() == line.x.size(); }))
    return;
  std::vector<std::string> counts;
  for (const Curve* curve : curves) counts.push_back(fmt::format("{}", curve->x.size()));
  figure.notices.push_back(
      fmt::format("'{}' shows the common part of its runs, {} points ({} to {}): they have {}",
                  figure.legend_of(line), line.x.size(), line.x.front(), line.x.back(), join(counts, ", ")));
}

void tell_of_equal_seeds(Figure& figure, const std::vector<RecordedRun>& runs, const RunGroup& group) {
  const auto seeds = [&](size_t run) {
    std::string text;
    for (const ConfigValue& value : runs[run].config) {
      if (value.key.ends_with("seed")) text += value.value + " ";
    }
    return text;
  };
  std::map<std::string, size_t> seen;
  for (const size_t run : group.members) {
    const auto [first, is_new] = seen.emplace(seeds(run), run);
    if (is_new) continue;
    figure.notices.push_back(
        fmt::format("{} and {} have equal seeds: as repetitions of each other they make the interval too "
                    "narrow",
                    runs[first->second].name, runs[run].name));
  }
}

const char* name_of(Interval interval) {
  return interval == Interval::kStandardError ? "standard error"
         : interval == Interval::kBootstrap   ? "95% bootstrap interval"
                                              : "none";
}

}  // namespace

std::vector<RunGroup> groups_of(const std::vector<RecordedRun>& runs, const FigureContent& content) {
  if (!content.each) return group_runs(runs, content.over);
  std::vector<RunGroup> groups;
  for (size_t i = 0; i < runs.size(); ++i) groups.push_back({"", {i}});
  return groups;
}

std::string csv_text(std::string text) {
  for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
  return '"' + text + '"';
}

Figure Figure::of(const std::vector<RecordedRun>& runs, const FigureContent& content) {
  Figure figure;
  figure.what = content.what;
  figure.interval = content.interval;
  std::vector<Curve> curves = read_curves(figure, runs, content);
  for (Curve& curve : curves) curve.y = smoothed(curve.y, content.smooth);

  const std::vector<RunGroup> groups = groups_of(runs, content);
  const std::vector<std::string> names = short_names(runs);
  for (const RunGroup& group : groups) {
    figure.lines.push_back(line_of(group, runs, curves, content));
    if (group.label.empty() && group.members.size() == 1)
      figure.lines.back().label = names[group.members.front()];
  }
  // A line's legend follows from all lines.
  for (size_t i = 0; i < groups.size(); ++i) {
    tell_of_common_part(figure, figure.lines[i], curves_of(groups[i], curves));
    tell_of_equal_seeds(figure, runs, groups[i]);
  }
  return figure;
}

bool Figure::shows_single_runs() const {
  return std::ranges::all_of(lines, [](const FigureLine& line) { return line.runs.size() == 1; });
}

std::string Figure::statistics() const {
  if (shows_single_runs()) return "single runs";
  return interval == Interval::kNone ? "mean over runs"
                                     : fmt::format("mean and {} over runs", name_of(interval));
}

std::string Figure::legend_of(const FigureLine& line) const {
  if (shows_single_runs()) return line.label;
  if (line.label.empty()) return fmt::format("{}, n = {}", statistics(), line.runs.size());
  return fmt::format("{} (n = {})", line.label, line.runs.size());
}

Chart Figure::chart() const {
  Chart chart;
  chart.x_label = x_label;
  chart.y_label = y_label;
  for (const FigureLine& line : lines) {
    Series series;
    series.name = abridged(legend_of(line));
    for (size_t i = 0; i < line.x.size(); ++i) {
      series.x.push_back(static_cast<double>(line.x[i]));
      series.y.push_back(line.y[i].mean);
      if (line.runs.size() == 1 || interval == Interval::kNone) continue;
      series.band.low.push_back(line.y[i].low);
      series.band.high.push_back(line.y[i].high);
    }
    chart.series.push_back(std::move(series));
  }
  chart.references = references;
  chart.from_zero = what == FigureContent::kReturns;
  return chart;
}

nlohmann::ordered_json Figure::json() const {
  nlohmann::ordered_json object = {
      {"what", what}, {"x", x_label}, {"interval", name_of(interval)}, {"groups", nlohmann::json::array()}};
  for (const FigureLine& line : lines) {
    nlohmann::ordered_json group = {
        {"label", line.label}, {"n", line.runs.size()}, {"runs", line.runs}, {"x", line.x}};
    for (const MeanOverSeeds& y : line.y) {
      group["mean"].push_back(y.mean);
      group["low"].push_back(y.low);
      group["high"].push_back(y.high);
    }
    object["groups"].push_back(std::move(group));
  }
  object["references"] = nlohmann::json::object();
  for (const Reference& reference : references) object["references"][reference.name] = reference.y;
  if (!evaluations.empty()) object["evaluations"] = evaluations;
  object["notices"] = notices;
  return object;
}

std::string Figure::csv() const {
  std::string rows = "group,n,x,mean,low,high\n";
  for (const FigureLine& line : lines) {
    const std::string label = csv_text(line.label);
    for (size_t i = 0; i < line.x.size(); ++i) {
      rows += fmt::format("{},{},{},{},{},{}\n", label, line.runs.size(), line.x[i], line.y[i].mean,
                          line.y[i].low, line.y[i].high);
    }
  }
  return rows;
}

}  // namespace adtrain
