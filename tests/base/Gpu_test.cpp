#include "base/Gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

Gpu h100() {
  Gpu gpu;
  gpu.name = "NVIDIA H100";
  gpu.compute_capability = 90;
  return gpu;
}

TEST(ObstacleOf, AGpuThatRunsOurKernelsIsNone) {
  Gpu gpu = h100();
  gpu.runs_our_kernels = true;
  EXPECT_EQ(obstacle_of(gpu), "");
}

TEST(ObstacleOf, AGpuThatOthersUseIsWhatCudaSays) {
  Gpu gpu = h100();
  gpu.trouble = "out of memory (nvidia-smi shows which processes have it)";
  EXPECT_THAT(obstacle_of(gpu), AllOf(HasSubstr("NVIDIA H100, of which CUDA says: out of memory (nvidia-smi"),
                                      Not(HasSubstr("this build"))));
}

TEST(ObstacleOf, AGpuWithoutCodeNamesTheArchitectureToBuildFor) {
  EXPECT_THAT(obstacle_of(h100()),
              AllOf(HasSubstr("compute capability 9.0"), HasSubstr("-DADTRAIN_CUDA_ARCHITECTURES=90 added")));
}

}  // namespace
}  // namespace adtrain
