#include <gtest/gtest.h>

#include "emulation/Cases.h"
#include "model/FusedBlockChecks.h"

namespace adtrain {
namespace {

class BlockForward : public testing::EmulatedKernel {};

TEST_P(BlockForward, IsTheReferenceInAnyOrderOfThreads) {
  testing::expect_forward_is_the_reference(GetParam(), at::kCPU);
}

INSTANTIATE_TEST_SUITE_P(Shapes, BlockForward, ::testing::ValuesIn(testing::emulated_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

class MlpBackward : public testing::EmulatedKernel {};

TEST_P(MlpBackward, IsTheReferenceInAnyOrderOfThreads) {
  testing::expect_mlp_backward_is_the_reference(GetParam(), at::kCPU);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MlpBackward, ::testing::ValuesIn(testing::emulated_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

class AttentionBackward : public testing::EmulatedKernel {};

TEST_P(AttentionBackward, IsTheReferenceInAnyOrderOfThreads) {
  testing::expect_attention_backward_is_the_reference(GetParam(), at::kCPU);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionBackward, ::testing::ValuesIn(testing::emulated_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

}  // namespace
}  // namespace adtrain
