#include "telemetry/profile/ChromeTrace.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "telemetry/profile/KernelName.h"

namespace adtrain {
namespace {

/// Rows have numbers, as threads do. Those of streams are above any thread's.
constexpr int64_t kRowOfSteps = 0;
constexpr int64_t kRowOfFirstStream = 1'000'000'000;
constexpr size_t kLongestName = 120;

int64_t row_of(const ProfileEvent& event) {
  return event.on_device ? kRowOfFirstStream + event.row : event.row;
}

const char* category_of(EventKind kind) {
  switch (kind) {
    case EventKind::kKernel:
      return "kernel";
    case EventKind::kCollective:
    case EventKind::kCollectiveStart:
      return "collective";
    case EventKind::kCopy:
      return "copy";
    case EventKind::kOperator:
      return "operator";
    case EventKind::kCall:
      return "cuda_call";
  }
  return "";
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Piece {
 public:
  explicit Piece(const TraceRank& rank) : rank_(rank) {}

  /// Names a process (`what` is "process") or a row (`what` is "thread"), and places it in its order.
  void title(const char* what, int64_t row, const std::string& name, int64_t place) {
    write(R"({{"ph":"M","name":"{}_name","pid":{},"tid":{},"args":{{"name":{}}}}},)", what, rank_.rank, row,
          quoted(name));
    write(R"({{"ph":"M","name":"{}_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}},)", what,
          rank_.rank, row, place);
  }

  void event(const std::string& quoted_name, const char* category, int64_t row, int64_t start_ns,
             int64_t duration_ns) {
    write(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{}}},)", quoted_name, category,
          rank_.rank, row, microseconds(start_ns - rank_.origin_ns), microseconds(duration_ns));
  }

  std::string text() { return std::move(text_); }

 private:
  /// Exact, unlike a number of type double in a day's trace.
  static std::string microseconds(int64_t ns) {
    const int64_t size = std::abs(ns);
    return fmt::format("{}{}.{:03d}", ns < 0 ? "-" : "", size / 1000, size % 1000);
  }

  template <class... Values>
  void write(fmt::format_string<Values...> line, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), line, std::forward<Values>(values)...);
    text_ += '\n';
  }

  const TraceRank& rank_;
  std::string text_;
};

}  // namespace

std::string trace_of_rank(const TraceRank& rank, const ProfileEvents& recorded,
                          const std::vector<StepWindow>& windows) {
  Piece piece(rank);
  piece.title("process", kRowOfSteps, rank.title, rank.rank);
  piece.title("thread", kRowOfSteps, "steps", kRowOfSteps);
  std::set<std::pair<int64_t, bool>> rows;
  for (const ProfileEvent& event : recorded.events) rows.emplace(row_of(event), event.on_device);
  for (const auto& [row, on_device] : rows) {
    // Streams are above threads, in the order in which they are seen.
    piece.title("thread", row,
                on_device ? fmt::format("stream {}", row - kRowOfFirstStream) : fmt::format("thread {}", row),
                on_device ? row - kRowOfFirstStream + 1 : kRowOfFirstStream);
  }
  for (const StepWindow& window : windows) {
    const std::string name = window.step ? fmt::format("\"step {}\"", *window.step) : "\"between steps\"";
    if (window.step || window.end_ns > window.start_ns) {
      piece.event(name, "step", kRowOfSteps, window.start_ns, window.end_ns - window.start_ns);
    }
  }
  std::vector<std::string> names;
  for (const std::string& name : recorded.names) names.push_back(quoted(kernel_name(name, kLongestName)));
  for (const ProfileEvent& event : recorded.events) {
    piece.event(names[event.name], category_of(event.kind), row_of(event), event.start_ns, event.duration_ns);
  }
  return piece.text();
}

int64_t keep_longest(std::vector<ProfileEvent>& events, size_t most) {
  const size_t before = events.size();
  if (before > most) {
    const auto behind = events.begin() + static_cast<std::ptrdiff_t>(most);
    std::ranges::nth_element(events, behind, std::greater(), &ProfileEvent::duration_ns);
    events.erase(behind, events.end());
  }
  std::ranges::stable_sort(events, {}, &ProfileEvent::start_ns);
  return static_cast<int64_t>(before - events.size());
}

}  // namespace adtrain
