#include "telemetry/profile/StepParts.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "telemetry/profile/Intervals.h"

namespace adtrain {
namespace {

template <class Choice>
Intervals intervals_of(const std::vector<ProfileEvent>& events, const Choice& choice) {
  std::vector<Intervals::Interval> chosen;
  for (const ProfileEvent& event : events) {
    if (choice(event)) chosen.emplace_back(event.start_ns, event.end_ns());
  }
  return Intervals(std::move(chosen));
}

/// From the start of each operation in the background, or of the first of several, to the end of the call
/// that waits for them.
Intervals in_flight(const std::vector<ProfileEvent>& events) {
  std::vector<const ProfileEvent*> calls;
  for (const ProfileEvent& event : events) {
    if (event.kind == EventKind::kCollective || event.kind == EventKind::kCollectiveStart) {
      calls.push_back(&event);
    }
  }
  std::ranges::sort(calls, {}, &ProfileEvent::start_ns);
  std::vector<Intervals::Interval> spans;
  constexpr int64_t kNone = -1;
  int64_t first_start = kNone, waited_until = 0;
  for (const ProfileEvent* call : calls) {
    if (call->kind == EventKind::kCollectiveStart) {
      // A call that waits may itself start the last of them.
      if (first_start == kNone && call->start_ns >= waited_until) first_start = call->start_ns;
    } else {
      if (first_start != kNone) spans.emplace_back(first_start, call->end_ns());
      first_start = kNone;
      waited_until = call->end_ns();
    }
  }
  return Intervals(std::move(spans));
}

/// What a rank did at which instants; `copying` may overlap with both others.
struct Doing {
  Intervals computing, communicating, copying;
};

Doing doing_on_device(const std::vector<ProfileEvent>& events) {
  const auto of_kind = [&](EventKind kind) {
    return intervals_of(events,
                        [kind](const ProfileEvent& event) { return event.on_device && event.kind == kind; });
  };
  return {of_kind(EventKind::kKernel), of_kind(EventKind::kCollective), of_kind(EventKind::kCopy)};
}

Doing doing_on_host(const std::vector<ProfileEvent>& events) {
  const Intervals in_calls = intervals_of(events, [](const ProfileEvent& event) {
    return event.kind == EventKind::kCollective || event.kind == EventKind::kCollectiveStart;
  });
  const Intervals operators =
      intervals_of(events, [](const ProfileEvent& event) { return event.kind == EventKind::kOperator; });
  const Intervals computing = operators - in_calls;
  return {computing, in_calls | (computing & in_flight(events)), {}};
}

/// When the device is done with what each mark has launched; 0 where it launched nothing.
std::vector<int64_t> device_ends(const std::vector<ProfileEvent>& events,
                                 const std::vector<HostMark>& marks) {
  std::unordered_map<int64_t, int64_t> called_at;  // by correlation
  for (const ProfileEvent& event : events) {
    if (event.kind == EventKind::kCall) called_at.emplace(event.correlation, event.start_ns);
  }
  std::vector<int64_t> ends(marks.size(), 0);
  for (const ProfileEvent& event : events) {
    const auto call = event.on_device ? called_at.find(event.correlation) : called_at.end();
    if (call == called_at.end()) continue;
    const auto behind = std::ranges::upper_bound(marks, call->second, {}, &HostMark::start_ns);
    if (behind == marks.begin()) continue;
    int64_t& end = ends[static_cast<size_t>(behind - marks.begin()) - 1];
    end = std::max(end, event.end_ns());
  }
  return ends;
}

}  // namespace

double StepParts::overlapped_share() const {
  const int64_t communication = overlapped + communicating;
  return communication == 0 ? 0 : static_cast<double>(overlapped) / static_cast<double>(communication);
}

StepParts& StepParts::operator+=(const StepParts& other) {
  computing += other.computing;
  overlapped += other.overlapped;
  communicating += other.communicating;
  copying += other.copying;
  idle += other.idle;
  return *this;
}

std::vector<StepWindow> windows_of(const ProfileEvents& recorded, const std::vector<HostMark>& marks) {
  const std::vector<ProfileEvent>& events = recorded.events;
  if (marks.empty()) return {};
  const bool has_device = std::ranges::any_of(events, &ProfileEvent::on_device);
  const Doing doing = has_device ? doing_on_device(events) : doing_on_host(events);
  const Intervals overlapped = doing.computing & doing.communicating;
  const Intervals computing = doing.computing - overlapped;
  const Intervals communicating = doing.communicating - overlapped;
  const Intervals copying = doing.copying - (doing.computing | doing.communicating);

  const std::vector<int64_t> ends = device_ends(events, marks);
  std::vector<StepWindow> windows;
  int64_t start = marks.front().start_ns;
  for (size_t i = 0; i < marks.size(); ++i) {
    const int64_t end = std::max({start, marks[i].end_ns, ends[i]});
    StepWindow window{.step = marks[i].step, .start_ns = start, .end_ns = end, .parts = {}};
    window.parts.computing = computing.length_within(start, end);
    window.parts.overlapped = overlapped.length_within(start, end);
    window.parts.communicating = communicating.length_within(start, end);
    window.parts.copying = copying.length_within(start, end);
    window.parts.idle = end - start - window.parts.total();
    windows.push_back(window);
    start = end;
  }
  return windows;
}

const StepWindow* window_at(const std::vector<StepWindow>& windows, int64_t ns) {
  const auto window = std::ranges::upper_bound(windows, ns, {}, &StepWindow::end_ns);
  return window == windows.end() || ns < window->start_ns ? nullptr : &*window;
}

}  // namespace adtrain
