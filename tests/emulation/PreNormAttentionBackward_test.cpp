#include <gtest/gtest.h>

#include "emulation/Cases.h"
#include "model/PreNormChecks.h"

namespace adtrain {
namespace {

class PreNormAttentionBackward : public testing::EmulatedKernel {};

TEST_P(PreNormAttentionBackward, IsTheReferenceInAnyOrderOfThreads) {
  testing::expect_pre_norm_attention_backward_is_the_reference(GetParam(), at::kCPU);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PreNormAttentionBackward, ::testing::ValuesIn(testing::emulated_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

}  // namespace
}  // namespace adtrain
