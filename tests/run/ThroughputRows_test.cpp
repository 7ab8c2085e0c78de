#include "run/throughput/ThroughputRows.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing::ThrowsMessage;

ThroughputRow row_of(const std::vector<ThroughputRow>& rows, const std::string& key) {
  const auto found = std::ranges::find(rows, key, &ThroughputRow::key);
  return found == rows.end() ? ThroughputRow() : *found;
}

std::vector<std::string> keys_of(const std::vector<ThroughputRow>& rows) {
  std::vector<std::string> keys;
  for (const ThroughputRow& row : rows) keys.push_back(row.key);
  return keys;
}

TEST(ThroughputRows, OnFourGpusEachRowGetsWhatItSays) {
  const std::vector<ThroughputRow> rows = throughput_rows({.batch = 32}, {{"4", "5", "6", "7"}, 64, 1 << 30});
  std::vector<std::string> keys = throughput_row_keys();
  keys.resize(keys.size() - 4);  // those of others' programs
  EXPECT_EQ(keys_of(rows), keys);
  for (const ThroughputRow& row : rows) {
    EXPECT_EQ(row.not_here, "");
    EXPECT_THAT(row.settings, Contains(StartsWith("device_map=")).Times(1));
  }
  EXPECT_THAT(row_of(rows, "sequential").settings, ElementsAre("device_map=null", "score_batch=1"));
  EXPECT_THAT(row_of(rows, "sequential").gpus, ElementsAre("4"));
  EXPECT_THAT(row_of(rows, "batched").settings, Contains("score_batch=32"));
  EXPECT_EQ(row_of(rows, "ranks").ranks, 4);
  EXPECT_EQ(row_of(rows, "ranks").gpus_of(0), "4,5,6,7");
  EXPECT_EQ(row_of(rows, "processes").processes, 4);
  EXPECT_EQ(row_of(rows, "processes").gpus_of(2), "6");
  EXPECT_THAT(row_of(rows, "device_map").settings, ElementsAre("score_batch=auto", "device_map=balanced"));
  EXPECT_EQ(row_of(rows, "device_map").gpus_of(0), "4,5,6,7");
  EXPECT_THAT(row_of(rows, "int4").settings, Contains("load_in_4bit=true"));

  const auto two = throughput_rows({.processes = 2}, {{"0", "1", "2"}, 8, 0});
  EXPECT_EQ(row_of(two, "ranks").name, "2 ranks");
  EXPECT_EQ(row_of(two, "device_map").gpus_of(0), "0,1");
}

TEST(ThroughputRows, WeightsThatAreQuantisedAlreadyAreNotQuantisedAgain) {
  const auto rows = throughput_rows({.quantised = "nf4"}, {{"0"}, 8, 0});
  for (const char* const key : {"int8", "int4"})
    EXPECT_EQ(row_of(rows, key).not_here, "the weights of all rows are in nf4 already") << key;
  EXPECT_EQ(row_of(rows, "auto").not_here, "");
  EXPECT_EQ(row_of(rows, "ranks").name, "1 rank");
}

TEST(ThroughputRows, OneGpuSaysWhatItCannotCompare) {
  const auto rows = throughput_rows({}, {{"0"}, 8, 0});
  for (const char* const key : {"ranks", "processes", "device_map"})
    EXPECT_THAT(row_of(rows, key).not_here, HasSubstr("one GPU")) << key;
  EXPECT_EQ(row_of(rows, "auto").not_here, "");
  EXPECT_THAT(
      [] {
        throughput_rows({.processes = 2}, {{"0"}, 8, 0});
      },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("--nproc: found 2"), HasSubstr("1 GPU is visible"))));
}

TEST(ThroughputRows, OnTheCpuProcessesShareTheCoresAndAMapHasLogicalDevices) {
  const auto rows = throughput_rows({}, {{}, 8, 1000});
  EXPECT_THAT(row_of(rows, "sequential").settings, Contains("cpu_threads=1"));
  EXPECT_THAT(row_of(rows, "processes").settings, Contains("cpu_threads=4"));
  EXPECT_EQ(row_of(rows, "processes").gpus_of(1), "");
  EXPECT_THAT(row_of(rows, "device_map").settings, Contains("max_memory={0: 500, 1: 500}"));
  EXPECT_THAT(row_of(throughput_rows({.sets_threads = true}, {{}, 8, 1000}), "processes").settings,
              Not(Contains(StartsWith("cpu_threads"))));
  // A map of the user takes the place of the one that is tried.
  const ThroughputRow own =
      row_of(throughput_rows({.processes = 1, .sets_map = true}, {{}, 8, 1000}), "device_map");
  EXPECT_EQ(own.not_here, "");
  EXPECT_THAT(own.settings, ElementsAre("score_batch=auto"));
}

TEST(ThroughputRows, AMapWithinLimitsHasTheirDevicesWhateverNprocSays) {
  const auto map_of = [](const ThroughputPlan& plan, const ThroughputMachine& machine) {
    return row_of(throughput_rows(plan, machine), "device_map");
  };
  const ThroughputRow logical = map_of({.processes = 1, .limited_devices = 3}, {{}, 8, 1000});
  EXPECT_EQ(logical.name, "map, 3 devices");
  EXPECT_EQ(logical.not_here, "");
  EXPECT_THAT(logical.settings, ElementsAre("score_batch=auto", "device_map=balanced"));
  const ThroughputRow gpus = map_of({.processes = 2, .limited_devices = 1}, {{"4", "5", "6"}, 8, 0});
  EXPECT_EQ(gpus.name, "map, 1 GPU");
  EXPECT_EQ(gpus.gpus_of(0), "4,5,6") << "the limits count all of them";
}

TEST(ThroughputRows, OthersProgramsComeWhereTheyAreAskedFor) {
  const auto all = throughput_rows({.batch = 8, .precision = "bf16", .peers = true}, {{"4", "5"}, 8, 0});
  EXPECT_EQ(keys_of(all), throughput_row_keys());
  EXPECT_THAT(row_of(all, "accelerate").peer,
              ElementsAre("--way", "accelerate", "--batch", "8", "--precision", "bf16", "--device", "cuda"));
  EXPECT_EQ(row_of(all, "accelerate").gpus_of(0), "4,5");
  EXPECT_EQ(row_of(all, "bitsandbytes_4bit").gpus_of(0), "4");
  EXPECT_FALSE(ThroughputRow::is_peer(row_of(all, "device_map")));
  const auto named = throughput_rows({.rows = {"auto", "pytorch"}}, {{"4"}, 8, 0});
  EXPECT_THAT(keys_of(named), ElementsAre("auto", "pytorch"));
  for (const std::vector<std::string>& gpus : {std::vector<std::string>{}, {"0"}}) {
    const auto few = throughput_rows({.peers = true}, {gpus, 8, 0});
    EXPECT_THAT(row_of(few, "accelerate").not_here, HasSubstr("expected 2 or more"));
    EXPECT_EQ(row_of(few, "pytorch").not_here, "");
  }
}

TEST(ThroughputRows, SomeRowsByTheirKeys) {
  const auto rows = throughput_rows({.rows = {"int8", "sequential"}}, {{}, 2, 1000});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].key, "sequential");
  EXPECT_EQ(rows[1].key, "int8");
  EXPECT_THAT(
      [] {
        throughput_rows({.rows = {"proceses"}}, {{}, 2, 0});
      },
      ThrowsMessage<ConfigError>(
          AllOf(HasSubstr("--rows: found 'proceses'"), HasSubstr("did you mean processes?"))));
}

}  // namespace
}  // namespace adtrain
