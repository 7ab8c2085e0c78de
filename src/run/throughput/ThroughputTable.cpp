#include "run/throughput/ThroughputTable.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Text.h"
#include "run/throughput/MeasuredScoring.h"

namespace adtrain {
namespace {

using nlohmann::ordered_json;

constexpr double kSamples = 100;  ///< of the column that the guides compare by

std::string rate_text(double rate) {
  return rate < 100 ? fmt::format("{:.2f}", rate) : fmt::format("{:.0f}", rate);
}

/// One unit for the whole column, so that times compare at a glance.
std::string seconds_text(double seconds) {
  return seconds < 10 ? fmt::format("{:.3f} s", seconds) : fmt::format("{:.1f} s", seconds);
}

std::string status_of(const ThroughputResult& result) {
  return result.speed ? "measured" : result.failed ? "failed" : "skipped";
}

}  // namespace

std::optional<double> ThroughputTable::speed_up(const ThroughputResult& result) const {
  const auto first = std::ranges::find_if(
      results, [](const ThroughputResult& each) { return each.row.key == "sequential" && each.speed; });
  if (first == results.end() || !result.speed) return std::nullopt;
  return result.speed->samples_per_second() / first->speed->samples_per_second();
}

std::vector<std::string> ThroughputTable::lines() const {
  const auto line = [](const std::string& name, const std::string& rate, const std::string& time,
                       const std::string& faster, const std::string& batch, const std::string& gpus,
                       const std::string& memory) {
    return fmt::format("{:<16} {:>10} {:>12} {:>9} {:>6} {:>5} {:>12}", name, rate, time, faster, batch, gpus,
                       memory);
  };
  std::vector<std::string> lines = {
      line("", "samples/s", "100 samples", "speed-up", "batch", "GPUs", "memory peak")};
  std::vector<std::string> reasons;
  for (const ThroughputResult& result : results) {
    if (!result.speed) {
      lines.push_back(line(result.row.name, "-", "-", "-", "-", "-", "-"));
      reasons.push_back(fmt::format("{}: {}: {}", result.row.name, status_of(result), result.because));
      continue;
    }
    const ScoringSpeed& speed = *result.speed;
    const std::optional<double> faster = speed_up(result);
    lines.push_back(line(result.row.name, rate_text(speed.samples_per_second()),
                         seconds_text(kSamples / speed.samples_per_second()),
                         faster ? fmt::format("{:.2f}", *faster) : "-", std::to_string(speed.batch),
                         std::to_string(speed.gpus.size()),
                         human_bytes(static_cast<double>(speed.memory_peak))));
  }
  lines.insert(lines.end(), reasons.begin(), reasons.end());
  return lines;
}

ordered_json ThroughputTable::json() const {
  ordered_json rows = ordered_json::array();
  for (const ThroughputResult& result : results) {
    ordered_json row = {{"row", result.row.key},       {"name", result.row.name},
                        {"status", status_of(result)}, {"settings", result.row.settings},
                        {"ranks", result.row.ranks},   {"processes", result.row.processes}};
    if (!result.speed) row["because"] = result.because;
    if (result.speed) {
      const ScoringSpeed& speed = *result.speed;
      const std::optional<double> faster = speed_up(result);
      row["samples_per_second"] = speed.samples_per_second();
      row["seconds_for_100_samples"] = kSamples / speed.samples_per_second();
      row["speed_up"] = faster ? ordered_json(*faster) : ordered_json(nullptr);
      row["gpus_used"] = speed.gpus.size();
      row["memory_peak_bytes"] = speed.memory_peak;
      row["measured"] = speed.json();
    }
    rows.push_back(std::move(row));
  }
  return {{"run", run},
          {"histories", histories},
          {"settings", settings},
          {"seconds_of_each", seconds},
          {"warm_up_seconds", warm_up_seconds(seconds)},
          {"rows", std::move(rows)}};
}

Chart ThroughputTable::chart() const {
  Chart chart;
  chart.title = "Scoring: " + run;
  chart.y_label = "samples a second";
  chart.from_zero = true;
  Series series;
  for (const ThroughputResult& result : results) {
    if (!result.speed) continue;
    series.x.push_back(static_cast<double>(chart.bars.size()));
    series.y.push_back(result.speed->samples_per_second());
    chart.bars.push_back(result.row.name);
  }
  chart.series.push_back(std::move(series));
  return chart;
}

}  // namespace adtrain
