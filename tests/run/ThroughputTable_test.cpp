#include "run/throughput/ThroughputTable.h"

#include <cstdlib>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "run/throughput/RowProcesses.h"
#include "run/throughput/StartLine.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::MatchesRegex;
using testing::ThrowsMessage;

ScoringSpeed speed_of(int64_t samples, double began, double ended, std::vector<std::string> gpus = {}) {
  ScoringSpeed speed;
  speed.samples = samples;
  speed.began = began;
  speed.ended = ended;
  speed.batch = 8;
  speed.device = gpus.empty() ? "CPU" : "NVIDIA H100";
  speed.precision = "fp32";
  speed.gpus = std::move(gpus);
  speed.memory_peak = samples << 20;
  return speed;
}

ThroughputResult result_of(const std::string& key, std::optional<ScoringSpeed> speed) {
  ThroughputResult result;
  result.row.key = key;
  result.row.name = "the " + key;
  result.speed = std::move(speed);
  return result;
}

TEST(ThroughputTable, ProcessesThatWorkTogetherCountFromTheFirstBeginToTheLastEnd) {
  const ScoringSpeed all = ScoringSpeed::together(
      {speed_of(100, 10.5, 15, {"a"}), speed_of(300, 10, 14, {"b"}), speed_of(50, 11, 14, {"a"})});
  EXPECT_EQ(all.samples, 450);
  EXPECT_DOUBLE_EQ(all.seconds(), 5);
  EXPECT_DOUBLE_EQ(all.samples_per_second(), 90);
  EXPECT_EQ(all.processes, 3);
  EXPECT_THAT(all.gpus, ElementsAre("a", "b"));
  EXPECT_EQ(all.memory_peak, 300 << 20);
}

TEST(ThroughputTable, ASpeedIsReadBackAsItWasWritten) {
  const TemporaryFolder folder;
  speed_of(123, 0.25, 7.125, {"a", "b"}).write(folder.path());
  const ScoringSpeed read = ScoringSpeed::read(folder.path());
  EXPECT_EQ(read.json(), speed_of(123, 0.25, 7.125, {"a", "b"}).json());
  write_file_atomically(ScoringSpeed::file(folder.path()), "{\"samples\": 1}");
  EXPECT_THAT([&] { ScoringSpeed::read(folder.path()); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("speed.json"), HasSubstr("began"))));
}

TEST(ThroughputTable, RowsAreComparedWithOneSampleAtATime) {
  ThroughputTable table;
  table.run = "step 4 of runs/a";
  table.results = {result_of("sequential", speed_of(10, 0, 5, {"a"})),
                   result_of("ranks", speed_of(1500, 0, 10, {"a", "b"})), result_of("int8", std::nullopt),
                   result_of("int4", std::nullopt)};
  table.results[2].because = "one GPU";
  table.results[3].because = "unknown key";
  table.results[3].failed = true;
  EXPECT_THAT(table.lines(),
              ElementsAre("                  samples/s  100 samples  speed-up  batch  GPUs  memory peak",
                          "the sequential         2.00       50.0 s      1.00      8     1     10.0 MiB",
                          "the ranks               150      0.667 s     75.00      8     2      1.5 GiB",
                          "the int8                  -            -         -      -     -            -",
                          "the int4                  -            -         -      -     -            -",
                          "the int8: skipped: one GPU", "the int4: failed: unknown key"));
  const json rows = table.json()["rows"];
  EXPECT_EQ(rows[1]["status"], "measured");
  EXPECT_DOUBLE_EQ(rows[1]["speed_up"], 75);
  EXPECT_DOUBLE_EQ(rows[1]["samples_per_second"], 150);
  EXPECT_DOUBLE_EQ(rows[1]["seconds_for_100_samples"], 100 / 150.0);
  EXPECT_EQ(rows[1]["gpus_used"], 2);
  EXPECT_EQ(rows[1]["memory_peak_bytes"], int64_t{1500} << 20);
  EXPECT_EQ(rows[2]["status"], "skipped");
  EXPECT_EQ(rows[3]["status"], "failed");
  EXPECT_EQ(rows[3]["because"], "unknown key");
  EXPECT_THAT(table.chart().bars, ElementsAre("the sequential", "the ranks"));
  EXPECT_THAT(table.chart().series[0].y, ElementsAre(2, 150));

  table.results.erase(table.results.begin());
  EXPECT_TRUE(table.json()["rows"][0]["speed_up"].is_null());
}

TEST(ThroughputTable, TheReasonIsWhatTheCommandSaid) {
  EXPECT_EQ(
      error_in_log(
          "adtrain: old\nsome line\nadtrain: key: found 1;\n  expected 2\nadtrain launch: rank 0\n  x\n"),
      "key: found 1; expected 2");
  EXPECT_EQ(
      error_in_log(
          "adtrain: rank 1: first\n━━ adtrain ended: rank 1 of 2 failed first ━━\n   rank        1 of 2\n"
          "   error       no memory\n   exit code   8\n   what to do  less\n"),
      "no memory");
  EXPECT_EQ(error_in_log("killed\n"), "");
}

TEST(ThroughputTable, ProcessesStartTogether) {
  EXPECT_TRUE(await_start([] { return false; })) << "without a start line nobody waits";
  StartLine line;
  const std::string variable = line.variable(), name = variable.substr(0, variable.find('='));
  setenv(name.c_str(), variable.substr(name.size() + 1).c_str(), 1);
  auto waits = std::async(std::launch::async, [] { return await_start([] { return false; }); });
  int64_t ready = 0;
  while (ready == 0) ready += line.newly_ready();
  EXPECT_EQ(ready, 1);
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(250)), std::future_status::timeout);
  EXPECT_FALSE(await_start([] { return true; })) << "a request to stop ends the wait";
  line.go();
  EXPECT_TRUE(waits.get());
  unsetenv(name.c_str());
}

}  // namespace
}  // namespace adtrain
