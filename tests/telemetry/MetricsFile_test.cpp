#include "telemetry/MetricsFile.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"
#include "telemetry/MetricsLog.h"

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::Key;

TEST(MetricsFile, ReadsWhatTheLogWrote) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    MetricsLog log(path, 1);
    log.record({{"step", 1}, {"loss", 0.1}, {"peak_memory", {5, 6}}});
    log.record({{"step", 1}, {"test_loss", 2}});
    log.record({{"step", 2}, {"loss", std::nan("")}});
  }
  write_file(path, read_file(path) + "{\"step\": 3, \"lo");
  const auto metrics = read_metrics(path);
  EXPECT_THAT(metrics, ElementsAre(Key("loss"), Key("test_loss")));
  EXPECT_THAT(metrics.at("loss").x, ElementsAre(1, 2));
  EXPECT_EQ(metrics.at("loss").y[0], 0.1);
  EXPECT_TRUE(std::isnan(metrics.at("loss").y[1]));
  EXPECT_THAT(metrics.at("test_loss").y, ElementsAre(2));
}

TEST(MetricsFile, SkipsWhatIsNoRecord) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  write_file(path, "[1]\n{\"loss\": 1}\n{\"step\": \"x\", \"loss\": 1}\n\n{\"step\": 4, \"loss\": 1}\n");
  EXPECT_THAT(read_metrics(path).at("loss").x, ElementsAre(4));
  EXPECT_THROW(read_metrics(folder.path() / "none"), std::filesystem::filesystem_error);
}

}  // namespace
}  // namespace adtrain
