#include <gtest/gtest.h>

#include "emulation/Cases.h"
#include "kernels/FusedBlockChecks.h"

namespace adtrain {
namespace {

/// Kernels that see a sequence, its padding and the places of its queries: the MLP's sees rows alone.
class EmulatedPadding : public testing::EmulatedKernel {};

TEST_P(EmulatedPadding, ForwardIsTheReferenceInAnyOrderOfThreads) {
  testing::expect_forward_is_the_reference(GetParam(), at::kCPU);
}

TEST_P(EmulatedPadding, AttentionBackwardIsTheReferenceInAnyOrderOfThreads) {
  testing::expect_attention_backward_is_the_reference(GetParam(), at::kCPU);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedPadding, ::testing::ValuesIn(testing::emulated_padded_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

}  // namespace
}  // namespace adtrain
