#include "telemetry/PrometheusFile.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

TEST(PrometheusFile, HoldsTheNewestValueOfEachFigure) {
  const TemporaryFolder folder;
  PrometheusFile file(folder.path() / "metrics.prom", "a \"b\"\\c");
  file.set("loss", 2);
  file.set("loss", 0.5);
  file.set("memory_bytes", 1e9, {{"rank", "1"}});
  file.set("memory_bytes", 2e9, {{"rank", "0"}});
  file.set("gradient_norm", std::numeric_limits<double>::quiet_NaN());
  file.write();
  EXPECT_EQ(file.failure(), "");
  EXPECT_EQ(read_file(folder.path() / "metrics.prom"),
            "# TYPE adtrain_gradient_norm gauge\n"
            "adtrain_gradient_norm{run=\"a \\\"b\\\"\\\\c\"} NaN\n"
            "# TYPE adtrain_loss gauge\n"
            "adtrain_loss{run=\"a \\\"b\\\"\\\\c\"} 0.5\n"
            "# TYPE adtrain_memory_bytes gauge\n"
            "adtrain_memory_bytes{run=\"a \\\"b\\\"\\\\c\",rank=\"0\"} 2000000000\n"
            "adtrain_memory_bytes{run=\"a \\\"b\\\"\\\\c\",rank=\"1\"} 1000000000\n");
}

TEST(PrometheusFile, IsWrittenNoMoreOftenThanItIsRead) {
  const TemporaryFolder folder;
  PrometheusFile file(folder.path() / "metrics.prom", "a");
  const auto loss = [&] { return read_file(folder.path() / "metrics.prom"); };
  file.set("loss", 2);
  file.write();
  const std::string first = loss();
  file.set("loss", 1);
  file.write();
  EXPECT_EQ(loss(), first);
  file.write_now();
  EXPECT_NE(loss(), first);
}

TEST(PrometheusFile, SaysWhyItCannotBeWritten) {
  PrometheusFile file("/proc/adtrain/metrics.prom", "a");
  file.set("loss", 2);
  file.write();
  EXPECT_NE(file.failure(), "");
}

}  // namespace
}  // namespace adtrain
