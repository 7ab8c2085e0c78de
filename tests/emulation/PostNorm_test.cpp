#include <gtest/gtest.h>

#include "emulation/Cases.h"
#include "kernels/FusedBlockChecks.h"

namespace adtrain {
namespace {

class EmulatedPostNorm : public testing::EmulatedKernel {};

TEST_P(EmulatedPostNorm, ForwardIsTheReferenceInAnyOrderOfThreads) {
  testing::expect_forward_is_the_reference(GetParam(), at::kCPU);
}

TEST_P(EmulatedPostNorm, MlpBackwardIsTheReferenceInAnyOrderOfThreads) {
  testing::expect_mlp_backward_is_the_reference(GetParam(), at::kCPU);
}

TEST_P(EmulatedPostNorm, AttentionBackwardIsTheReferenceInAnyOrderOfThreads) {
  testing::expect_attention_backward_is_the_reference(GetParam(), at::kCPU);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedPostNorm, ::testing::ValuesIn(testing::emulated_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

}  // namespace
}  // namespace adtrain
