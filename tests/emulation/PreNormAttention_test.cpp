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

}  // namespace
}  // namespace adtrain
