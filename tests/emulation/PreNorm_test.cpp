#include <string>

#include <gtest/gtest.h>

#include "emulation/Cases.h"
#include "model/PreNormChecks.h"

namespace adtrain {
namespace {

class PreNormAttention : public testing::EmulatedKernel {};

TEST_P(PreNormAttention, IsTheReferenceInAnyOrderOfThreads) {
  testing::expect_pre_norm_attention_is_the_reference(GetParam(), at::kCPU);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PreNormAttention, ::testing::ValuesIn(testing::emulated_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

TEST(Swiglu, IsTheReferenceInAnyOrderOfThreads) {
  at::manual_seed(1);
  for (const int width : {32, 64}) {
    for (const int rows : {1, 33, 200, 1100}) {
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width));
      testing::expect_swiglu_is_the_reference(rows, width, at::kCPU);
    }
  }
}

}  // namespace
}  // namespace adtrain
