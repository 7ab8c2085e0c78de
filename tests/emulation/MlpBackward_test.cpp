#include <gtest/gtest.h>

#include "emulation/Cases.h"
#include "model/FusedBlockChecks.h"

namespace adtrain {
namespace {

class MlpBackward : public testing::EmulatedKernel {};

TEST_P(MlpBackward, IsTheReferenceInAnyOrderOfThreads) {
  testing::expect_mlp_backward_is_the_reference(GetParam(), at::kCPU);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MlpBackward, ::testing::ValuesIn(testing::emulated_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

}  // namespace
}  // namespace adtrain
