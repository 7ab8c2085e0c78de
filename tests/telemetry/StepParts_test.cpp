#include "telemetry/profile/StepParts.h"

#include <random>

#include <gtest/gtest.h>

#include "telemetry/profile/Intervals.h"

namespace adtrain {
namespace {

constexpr int64_t kEnd = 300;  ///< all instants of these tests are before it

/// By instant: whether it is in the set.
std::vector<bool> instants(const Intervals& set) {
  std::vector<bool> in(kEnd, false);
  for (const auto& [first, second] : set.all()) {
    for (int64_t at = first; at < second; ++at) in[static_cast<size_t>(at)] = true;
  }
  return in;
}

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t limit) { return std::uniform_int_distribution<int64_t>(0, limit - 1)(engine_); }
  std::vector<Intervals::Interval> intervals() {
    std::vector<Intervals::Interval> some;
    for (int64_t i = below(12); i > 0; --i) {
      const int64_t first = below(kEnd);
      some.emplace_back(first, std::min(kEnd, first + below(40)));
    }
    return some;
  }

 private:
  std::mt19937_64 engine_;
};

TEST(Intervals, AreSetsOfInstants) {
  Chance chance(1);
  for (int round = 0; round < 500; ++round) {
    const auto any = chance.intervals();
    const Intervals a(any), b(chance.intervals());
    std::vector<bool> expected(kEnd, false);
    for (const auto& [first, second] : any) {
      for (int64_t at = first; at < second; ++at) expected[static_cast<size_t>(at)] = true;
    }
    EXPECT_EQ(instants(a), expected);
    const std::vector<bool> in_a = instants(a), in_b = instants(b);
    const std::vector<bool> either = instants(a | b), both = instants(a & b), only_a = instants(a - b);
    const int64_t begin = chance.below(kEnd), end = begin + chance.below(kEnd - begin);
    int64_t length = 0, within = 0;
    for (size_t at = 0; at < kEnd; ++at) {
      EXPECT_EQ(either[at], in_a[at] || in_b[at]);
      EXPECT_EQ(both[at], in_a[at] && in_b[at]);
      EXPECT_EQ(only_a[at], in_a[at] && !in_b[at]);
      length += in_a[at] ? 1 : 0;
      within += in_a[at] && static_cast<int64_t>(at) >= begin && static_cast<int64_t>(at) < end ? 1 : 0;
    }
    EXPECT_EQ(a.length(), length);
    EXPECT_EQ(a.length_within(begin, end), within);
  }
}

ProfileEvent on_device(EventKind kind, int64_t start, int64_t end, int64_t correlation = 0) {
  return {.start_ns = start,
          .duration_ns = end - start,
          .correlation = correlation,
          .kind = kind,
          .on_device = true,
          .row = 7};
}

ProfileEvent on_host(EventKind kind, int64_t start, int64_t end, int64_t correlation = 0) {
  return {.start_ns = start, .duration_ns = end - start, .correlation = correlation, .kind = kind, .row = 1};
}

/// The attribution, instant by instant.
StepParts parts_by_instants(const std::vector<ProfileEvent>& events, int64_t begin, int64_t end) {
  StepParts parts;
  for (int64_t at = begin; at < end; ++at) {
    const auto runs = [&](EventKind kind) {
      return std::ranges::any_of(events, [&](const ProfileEvent& event) {
        return event.kind == kind && event.start_ns <= at && at < event.end_ns();
      });
    };
    const bool computes = runs(EventKind::kKernel), communicates = runs(EventKind::kCollective);
    if (computes && communicates) {
      ++parts.overlapped;
    } else if (computes) {
      ++parts.computing;
    } else if (communicates) {
      ++parts.communicating;
    } else if (runs(EventKind::kCopy)) {
      ++parts.copying;
    } else {
      ++parts.idle;
    }
  }
  return parts;
}

TEST(StepParts, OfAGpuAreThoseOfEachInstant) {
  Chance chance(2);
  for (int round = 0; round < 300; ++round) {
    ProfileEvents recorded;
    for (const EventKind kind : {EventKind::kKernel, EventKind::kCollective, EventKind::kCopy}) {
      for (const auto& [first, second] : chance.intervals()) {
        recorded.events.push_back(on_device(kind, first, second));
      }
    }
    if (recorded.events.empty()) continue;
    const int64_t middle = 50 + chance.below(200);
    const std::vector<StepWindow> windows =
        windows_of(recorded, {{.step = 4, .start_ns = 10, .end_ns = middle},
                              {.step = std::nullopt, .start_ns = middle, .end_ns = middle},
                              {.step = 5, .start_ns = middle, .end_ns = 290}});
    ASSERT_EQ(windows.size(), 3U);
    for (const StepWindow& window : windows) {
      const StepParts expected = parts_by_instants(recorded.events, window.start_ns, window.end_ns);
      EXPECT_EQ(window.parts.computing, expected.computing);
      EXPECT_EQ(window.parts.overlapped, expected.overlapped);
      EXPECT_EQ(window.parts.communicating, expected.communicating);
      EXPECT_EQ(window.parts.copying, expected.copying);
      EXPECT_EQ(window.parts.idle, expected.idle);
      EXPECT_EQ(window.parts.total(), window.end_ns - window.start_ns);
    }
    EXPECT_EQ(windows[0].start_ns, 10);
    EXPECT_EQ(windows[2].end_ns, 290);
  }
}

/// The host launches step 2 while the GPU still works on step 1.
TEST(StepParts, AStepEndsWhenTheGpuIsDoneWithWhatTheHostLaunchedInIt) {
  ProfileEvents recorded;
  recorded.events = {on_host(EventKind::kCall, 1, 2, 11), on_device(EventKind::kKernel, 3, 40, 11),
                     on_host(EventKind::kCall, 12, 13, 12), on_device(EventKind::kKernel, 45, 90, 12)};
  const auto windows = windows_of(
      recorded, {{.step = 1, .start_ns = 0, .end_ns = 10}, {.step = 2, .start_ns = 10, .end_ns = 20}});
  EXPECT_EQ(windows[0].end_ns, 40);
  EXPECT_EQ(windows[0].parts.computing, 37);
  EXPECT_EQ(windows[0].parts.idle, 3);
  EXPECT_EQ(windows[1].end_ns, 90);
  EXPECT_EQ(windows[1].parts.computing, 45);
  EXPECT_EQ(windows[1].parts.idle, 5);
  EXPECT_EQ(window_at(windows, 40)->step, 2);
  EXPECT_EQ(window_at(windows, 39)->step, 1);
  EXPECT_EQ(window_at(windows, 90), nullptr);
}

/// Host that waits for the GPU's figures between two steps: that time is of neither.
TEST(StepParts, WorkBetweenStepsIsOfNoStep) {
  ProfileEvents recorded;
  recorded.events = {on_host(EventKind::kCall, 1, 2, 11), on_device(EventKind::kKernel, 3, 10, 11)};
  const auto windows = windows_of(recorded, {{.step = 1, .start_ns = 0, .end_ns = 5},
                                             {.step = std::nullopt, .start_ns = 5, .end_ns = 50},
                                             {.step = 2, .start_ns = 50, .end_ns = 60}});
  EXPECT_EQ(windows[0].end_ns, 10);
  EXPECT_EQ(windows[1].parts.idle, 40);
  EXPECT_EQ(windows[2].parts.idle, 10);
}

TEST(StepParts, OnTheCpuACallOfACollectiveIsCommunication) {
  ProfileEvents recorded;
  recorded.events = {on_host(EventKind::kOperator, 0, 20),         on_host(EventKind::kOperator, 20, 50),
                     on_host(EventKind::kCollectiveStart, 30, 32),  // inside a backward pass
                     on_host(EventKind::kCollectiveStart, 36, 37), on_host(EventKind::kCollective, 60, 80),
                     on_host(EventKind::kCollectiveStart, 61, 62),  // started by the wait
                     on_host(EventKind::kOperator, 85, 95),        on_host(EventKind::kCollective, 96, 98)};
  const auto windows = windows_of(recorded, {{.step = 1, .start_ns = 0, .end_ns = 100}});
  const StepParts& parts = windows.front().parts;
  EXPECT_EQ(parts.computing, 30 + 10);
  EXPECT_EQ(parts.overlapped, 4 + 13);             // 32-36 and 37-50: a sum is under way
  EXPECT_EQ(parts.communicating, 2 + 1 + 20 + 2);  // in the calls
  EXPECT_EQ(parts.idle, 10 + 5 + 1 + 2);
  EXPECT_EQ(parts.total(), 100);
  EXPECT_DOUBLE_EQ(parts.overlapped_share(), 17.0 / 42);
}

TEST(StepParts, NothingRecordedIsIdle) {
  const auto windows = windows_of({}, {{.step = 1, .start_ns = 5, .end_ns = 25}});
  EXPECT_EQ(windows.front().parts.idle, 20);
  EXPECT_EQ(windows.front().parts.overlapped_share(), 0);
  EXPECT_TRUE(windows_of({}, {}).empty());
}

}  // namespace
}  // namespace adtrain
