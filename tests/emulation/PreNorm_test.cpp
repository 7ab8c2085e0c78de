#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "emulation/Cases.h"
#include "kernels/PreNormChecks.h"

namespace adtrain {
namespace {

class EmulatedPreNorm : public testing::EmulatedKernel {};

TEST_P(EmulatedPreNorm, AttentionIsTheReferenceInAnyOrderOfThreads) {
  testing::expect_pre_norm_attention_is_the_reference(GetParam(), at::kCPU);
}

TEST_P(EmulatedPreNorm, AttentionBackwardIsTheReferenceInAnyOrderOfThreads) {
  testing::expect_pre_norm_attention_backward_is_the_reference(GetParam(), at::kCPU);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedPreNorm, ::testing::ValuesIn(testing::emulated_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

TEST(EmulatedRmsNorm, IsTheReferenceInAnyOrderOfThreads) {
  for (const testing::RmsNormCase& tried : std::vector<testing::RmsNormCase>{{5, 33, 32, 1, 33, 0.1},
                                                                             {3, 40, 64, 2, 7, 0.1},
                                                                             {1, 1, 64, 2, 1, 0.0},
                                                                             {2, 9, 200, 1, 4, 0.25},
                                                                             {3, 2, 1032, 3, 1, 0.0}}) {
    SCOPED_TRACE("width " + std::to_string(tried.width));
    testing::expect_rms_norm_is_the_reference(tried, at::kCPU);
  }
}

TEST(Swiglu, IsTheReferenceInAnyOrderOfThreads) {
  // The most are more than all thread blocks take at once.
  for (const auto& [rows, width] :
       std::vector<std::pair<int, int>>{{1, 32}, {1100, 32}, {33, 64}, {800, 64}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width));
    testing::expect_swiglu_is_the_reference(rows, width, at::kCPU);
  }
}

}  // namespace
}  // namespace adtrain
