#include "telemetry/profile/ChromeTrace.h"

#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "telemetry/profile/Gzip.h"

namespace adtrain {
namespace {

constexpr int64_t kHour = 3600'000'000'000;

ProfileEvents some_events() {
  ProfileEvents recorded;
  recorded.names = {"void kernel<int>(int*)", "operator \"quoted\"\n\xff"};
  recorded.events = {{.start_ns = kHour + 1'234'567,
                      .duration_ns = 1'005,
                      .name = 0,
                      .kind = EventKind::kKernel,
                      .on_device = true,
                      .row = 7},
                     {.start_ns = kHour - 2'500, .duration_ns = 900, .name = 1, .row = 7}};
  return recorded;
}

std::string trace_of(const std::vector<int64_t>& ranks) {
  std::string text(kTraceBegin);
  for (const int64_t rank : ranks) {
    text +=
        trace_of_rank({.rank = rank, .title = "rank " + std::to_string(rank) + " · node", .origin_ns = kHour},
                      some_events(),
                      {{.step = std::nullopt, .start_ns = kHour, .end_ns = kHour, .parts = {}},
                       {.step = 100, .start_ns = kHour, .end_ns = kHour + 2'000'000, .parts = {}}});
  }
  return text += kTraceEnd;
}

TEST(ChromeTrace, IsJsonWithARowForEachStreamAndThread) {
  const nlohmann::json trace = nlohmann::json::parse(trace_of({0, 1}));
  std::set<std::pair<int64_t, std::string>> processes, rows;
  std::vector<nlohmann::json> events;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") processes.emplace(event.at("pid"), event.at("args").at("name"));
    if (event.at("name") == "thread_name") rows.emplace(event.at("pid"), event.at("args").at("name"));
    if (event.at("ph") == "X" && event.at("pid") == 0) events.push_back(event);
  }
  using Titles = std::set<std::pair<int64_t, std::string>>;
  EXPECT_EQ(processes, (Titles{{0, "rank 0 · node"}, {1, "rank 1 · node"}}));
  EXPECT_EQ(
      rows,
      (Titles{
          {0, "steps"}, {0, "stream 7"}, {0, "thread 7"}, {1, "steps"}, {1, "stream 7"}, {1, "thread 7"}}));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].at("name"), "step 100");
  EXPECT_EQ(events[0].at("ts"), 0);
  EXPECT_EQ(events[0].at("dur"), 2000);
  EXPECT_EQ(events[1].at("name"), "kernel<int>");
  EXPECT_EQ(events[1].at("cat"), "kernel");
  EXPECT_EQ(events[1].at("ts"), 1234.567);  // microseconds
  EXPECT_EQ(events[1].at("dur"), 1.005);
  EXPECT_EQ(events[2].at("name"), "operator \"quoted\"\n\xef\xbf\xbd");
  EXPECT_EQ(events[2].at("ts"), -2.5);
  EXPECT_NE(events[1].at("tid"), events[2].at("tid")) << "a stream and a thread of the same number";
}

TEST(ChromeTrace, WithoutRanksIsStillJson) {
  EXPECT_TRUE(nlohmann::json::accept(trace_of({})));
}

TEST(ChromeTrace, KeepsTheLongestEvents) {
  std::vector<ProfileEvent> events;
  for (int64_t i = 0; i < 100; ++i) events.push_back({.start_ns = 1000 - i, .duration_ns = (i * 37) % 100});
  EXPECT_EQ(keep_longest(events, 200), 0);
  EXPECT_EQ(events.size(), 100U);
  EXPECT_EQ(keep_longest(events, 10), 90);
  ASSERT_EQ(events.size(), 10U);
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_GE(events[i].duration_ns, 90);
    if (i > 0) {
      EXPECT_LT(events[i - 1].start_ns, events[i].start_ns);
    }
  }
}

TEST(Gzip, GivesBackWhatItWasGiven) {
  std::mt19937_64 chance(1);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1} << 16, (size_t{1} << 18) + 5}) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += static_cast<char>(chance() % (i < size / 2 ? 256 : 3));
    EXPECT_EQ(gunzipped(gzipped(text)), text);
  }
  GzipText pieces;
  pieces.append("one ");
  pieces.append("");
  pieces.append("two");
  EXPECT_EQ(gunzipped(pieces.finish()), "one two");
}

TEST(Gzip, RefusesWhatIsNotWhole) {
  const std::string file = gzipped("some text that is long enough to be cut");
  EXPECT_THROW(gunzipped(file.substr(0, file.size() - 9)), std::runtime_error);
  EXPECT_THROW(gunzipped("no gzip"), std::runtime_error);
  EXPECT_THROW(gunzipped(""), std::runtime_error);
}

}  // namespace
}  // namespace adtrain
