#include "telemetry/profile/OperatorTable.h"

#include <algorithm>
#include <map>

namespace adtrain {
namespace {

/// By event: its duration without the events of its thread that lie in it.
std::vector<int64_t> self_times(const std::vector<ProfileEvent>& events) {
  std::vector<int64_t> self(events.size());
  std::map<int64_t, std::vector<size_t>> threads;
  for (size_t i = 0; i < events.size(); ++i) {
    self[i] = events[i].duration_ns;
    threads[events[i].row].push_back(i);
  }
  for (auto& [row, of_thread] : threads) {
    std::ranges::stable_sort(of_thread, [&](size_t a, size_t b) {
      if (events[a].start_ns != events[b].start_ns) return events[a].start_ns < events[b].start_ns;
      return events[a].duration_ns > events[b].duration_ns;
    });
    std::vector<size_t> around;  // the events that the next one may lie in, outermost first
    for (const size_t inner : of_thread) {
      while (!around.empty() && events[around.back()].end_ns() < events[inner].end_ns()) around.pop_back();
      if (!around.empty()) self[around.back()] -= events[inner].duration_ns;
      around.push_back(inner);
    }
  }
  return self;
}

}  // namespace

std::vector<OperatorRow> operator_table(const ProfileEvents& recorded,
                                        const std::vector<StepWindow>& windows) {
  const bool has_device = std::ranges::any_of(recorded.events, &ProfileEvent::on_device);
  std::vector<ProfileEvent> events;
  for (const ProfileEvent& event : recorded.events) {
    const bool in_table = has_device ? event.on_device : event.kind != EventKind::kCall;
    const StepWindow* const window = in_table ? window_at(windows, event.start_ns) : nullptr;
    if (window != nullptr && window->step) events.push_back(event);
  }
  std::vector<int64_t> self;
  if (!has_device) self = self_times(events);

  std::map<size_t, OperatorRow> rows;  // by name
  for (size_t i = 0; i < events.size(); ++i) {
    OperatorRow& row = rows[events[i].name];
    ++row.calls;
    row.total_ns += has_device ? events[i].duration_ns : self[i];
  }
  std::vector<OperatorRow> table;
  for (auto& [name, row] : rows) {
    row.name = recorded.names[name];
    table.push_back(std::move(row));
  }
  std::ranges::stable_sort(table, std::greater(), &OperatorRow::total_ns);
  return table;
}

}  // namespace adtrain
