#include "telemetry/profile/ProfileReport.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "telemetry/profile/KernelName.h"

namespace adtrain {
namespace {

/// "1.234 ms", with a unit in which it is readable.
std::string time_text(double ns) {
  if (ns < 1e6) return fmt::format("{:.1f} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.3f} ms", ns / 1e6);
  return fmt::format("{:.3f} s", ns / 1e9);
}

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

/// Columns that UTF-8 text takes; all characters used here are one column wide.
size_t columns(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](unsigned char byte) { return (byte & 0xC0) != 0x80; }));
}

std::string steps_text(const RankProfile& profile) {
  const int64_t first = *profile.steps.front().step, last = *profile.steps.back().step;
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {}-{}", first, last);
}

std::string table_text(const RankProfile& profile, size_t most_rows, size_t name_columns) {
  int64_t all = 0;
  for (const OperatorRow& row : profile.table) all += row.total_ns;
  const size_t shown = std::min(most_rows, profile.table.size());
  size_t widest = 4;
  std::vector<std::string> names;
  for (size_t i = 0; i < shown; ++i) {
    names.push_back(kernel_name(profile.table[i].name, name_columns));
    widest = std::max(widest, columns(names.back()));
  }
  std::string text;
  const auto line = [&](const std::string& name, const std::string& calls, const std::string& total,
                        const std::string& share, const std::string& average) {
    text += fmt::format("{}{}  {:>8}  {:>12}  {:>8}  {:>12}\n", name,
                        std::string(widest - columns(name), ' '), calls, total, share, average);
  };
  const char* const what = profile.on_gpu ? "Device" : "CPU";
  line("Name", "Calls", fmt::format("{} total", what), fmt::format("{} %", what), "Average");
  int64_t rest = 0, rest_calls = 0;
  for (size_t i = 0; i < profile.table.size(); ++i) {
    const OperatorRow& row = profile.table[i];
    if (i >= shown) {
      rest += row.total_ns;
      rest_calls += row.calls;
      continue;
    }
    line(names[i], std::to_string(row.calls), time_text(static_cast<double>(row.total_ns)),
         fmt::format("{:.1f}%", percent(row.total_ns, all)),
         time_text(static_cast<double>(row.total_ns) / static_cast<double>(row.calls)));
  }
  if (rest_calls > 0) {
    line(fmt::format("{} more", profile.table.size() - shown), std::to_string(rest_calls),
         time_text(static_cast<double>(rest)), fmt::format("{:.1f}%", percent(rest, all)),
         time_text(static_cast<double>(rest) / static_cast<double>(rest_calls)));
  }
  return text;
}

std::string parts_text(const std::vector<RankProfile>& ranks) {
  std::string text =
      fmt::format("{:>4}  {:>11}  {:>9}  {:>10}  {:>13}  {:>7}  {:>5}  {:>24}\n", "rank", "step", "computing",
                  "overlapped", "communicating", "copying", "idle", "communication overlapped");
  for (const RankProfile& profile : ranks) {
    const StepParts parts = profile.parts();
    const auto share = [&](int64_t part) { return fmt::format("{:.1f}%", percent(part, parts.total())); };
    const bool communicates = parts.overlapped + parts.communicating > 0;
    text +=
        fmt::format("{:>4}  {:>11}  {:>9}  {:>10}  {:>13}  {:>7}  {:>5}  {:>24}\n", profile.rank,
                    time_text(profile.step_seconds() * 1e9), share(parts.computing), share(parts.overlapped),
                    share(parts.communicating), share(parts.copying), share(parts.idle),
                    communicates ? fmt::format("{:.1f}%", 100 * parts.overlapped_share()) : "-");
  }
  return text;
}

}  // namespace

std::string profile_text(const std::vector<RankProfile>& ranks, size_t most_rows, size_t name_columns) {
  const RankProfile& first = ranks.front();
  std::string text = fmt::format(
      "profile of {}: rank {} ({}, {}), {}\n", steps_text(first), first.rank, first.host, first.device,
      first.on_gpu ? "what ran on the GPU" : "operators, without those inside them");
  text += table_text(first, most_rows, name_columns);
  text += "parts of a step, which sum to it (mean of the steps; overlapped: computing and communicating)\n";
  text += parts_text(ranks);
  int64_t left_out = 0;
  for (const RankProfile& profile : ranks) left_out += profile.left_out;
  if (left_out > 0) {
    text += fmt::format(
        "the trace lacks the {} shortest events of {} ranks; table and parts have all\n", left_out,
        std::ranges::count_if(ranks, [](const RankProfile& profile) { return profile.left_out > 0; }));
  }
  return text;
}

nlohmann::ordered_json profile_json(const std::vector<RankProfile>& ranks) {
  nlohmann::ordered_json json = {{"ranks", nlohmann::ordered_json::array()}};
  for (const RankProfile& profile : ranks) json["ranks"].push_back(profile.to_json());
  return json;
}

}  // namespace adtrain
