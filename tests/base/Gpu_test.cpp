#include "base/Gpu.h"

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(Gpu, CountAndListAgreeAndNeitherNeedsADriver) {
  const auto gpus = visible_gpus();
  EXPECT_EQ(static_cast<int>(gpus.size()), visible_gpu_count());
  for (const Gpu& gpu : gpus) {
    EXPECT_TRUE(gpu.runs_our_kernels)
        << gpu.name << " has compute capability " << gpu.compute_capability << " " << gpu.trouble;
    EXPECT_EQ(gpu.trouble, "");
    EXPECT_EQ(gpu.uuid.size(), 40U) << gpu.uuid;
    EXPECT_GT(gpu.memory_bytes, 0);
  }
}

TEST(Gpu, TheRuntimeIsOfTheMajorVersionThatWeWereBuiltAgainst) {
  const CudaVersions versions = cuda_versions();
  EXPECT_EQ(versions.runtime / 1000, versions.built_against / 1000);
  if (visible_gpu_count() > 0) {
    EXPECT_GE(versions.driver / 1000, versions.runtime / 1000);
  }
}

}  // namespace
}  // namespace adtrain
