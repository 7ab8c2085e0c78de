#include "framework/RankDevice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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
