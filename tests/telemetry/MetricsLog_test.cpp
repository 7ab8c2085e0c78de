#include "telemetry/MetricsLog.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(MetricsLog, WritesOneObjectALineInItsOrder) {
  const TemporaryFolder folder;
  MetricsLog log(folder.path() / "metrics.jsonl", 1);
  log.record({{"step", 1}, {"loss", 0.5}});
  log.record({{"step", 2}, {"accuracy", 1.0}, {"loss", 0.25}});
  EXPECT_EQ(read_file(folder.path() / "metrics.jsonl"),
            "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"accuracy\":1.0,\"loss\":0.25}\n");
}

TEST(MetricsLog, NumbersThatAreNotFiniteBecomeNullAndAreNamed) {
  const TemporaryFolder folder;
  MetricsLog log(folder.path() / "metrics.jsonl", 1);
  log.record(
      {{"step", 1}, {"loss", std::nan("")}, {"norm", -std::numeric_limits<double>::infinity()}, {"lr", 1.0}});
  EXPECT_EQ(read_file(folder.path() / "metrics.jsonl"),
            "{\"step\":1,\"loss\":null,\"norm\":null,\"lr\":1.0,\"non_finite\":{\"loss\":\"nan\",\"norm\":\"-"
            "inf\"}}\n");
}

TEST(MetricsLog, ResumingDropsRepeatedStepsAndWhatAKilledRunLeftHalf) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  write_file(path,
             "{\"step\":4}\n{\"step\":5,\"loss\":1}\n{\"step\":5,\"test_loss\":2}\nno "
             "JSON\n[5]\n{\"step\":\"x\"}\n{\"loss\":1}\n"
             "{\"step\":6}\n{\"step\":7}\n{\"step\":1,\"lo");
  MetricsLog log(path, 6);
  log.record({{"step", 6}, {"again", true}});
  EXPECT_EQ(
      read_file(path),
      "{\"step\":4}\n{\"step\":5,\"loss\":1}\n{\"step\":5,\"test_loss\":2}\n{\"step\":6,\"again\":true}\n");
}

TEST(MetricsLog, ANewRunBeginsAnEmptyFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  write_file(path, "{\"step\":1}\n{\"step\":2}\n");
  const MetricsLog log(path, 1);
  EXPECT_THAT(read_file(path), IsEmpty());
}

TEST(MetricsLog, AFileThatCannotBeOpenedNamesItself) {
  try {
    MetricsLog log("/proc/adtrain/metrics.jsonl", 1);
    FAIL();
  } catch (const std::filesystem::filesystem_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/proc/adtrain"));
  }
}

}  // namespace
}  // namespace adtrain
