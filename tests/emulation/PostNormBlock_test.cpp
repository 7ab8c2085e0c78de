#include <gtest/gtest.h>

#include "kernels/PostNormBlockChecks.h"

namespace adtrain {
namespace {

using testing::PostNormBlockCheck;

TEST(FusedPostNormBlock, IsTheReferenceWithTheBitsThatItDraws) {
  PostNormBlockCheck({{3, 21, 26, 64, 4, true, 21}, 0.1, 0.1, 256}, at::kCPU).run();
}

TEST(PostNormBlockByHalves, IsOneFunctionOfAutogradWithOurOwnAttention) {
  PostNormBlockCheck({{3, 21, 21, 128, 4, true}, 0.1, 0.2, 512, true}, at::kCPU).expect_one_function();
  PostNormBlockCheck({{3, 21, 1, 128, 4, true}, 0.1, 0.2, 512, true}, at::kCPU).expect_one_function();
}

class PostNormSublayers : public ::testing::TestWithParam<testing::BlockCase> {};

TEST_P(PostNormSublayers, AreTheReferenceWithTheBitsThatTheyDraw) {
  PostNormBlockCheck(GetParam(), at::kCPU).run();
}

INSTANTIATE_TEST_SUITE_P(Shapes, PostNormSublayers,
                         ::testing::ValuesIn(testing::post_norm_cases_by_sublayers()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

TEST(PostNormBlockByHalves, RecomputesToTheSameBits) {
  for (const testing::BlockCase& tried : testing::post_norm_cases_by_sublayers()) {
    if (tried.hidden_rate == 0 || tried.shape.width > 128) continue;
    SCOPED_TRACE(testing::name_of(tried));
    PostNormBlockCheck(tried, at::kCPU).expect_the_same_recomputed();
  }
}

}  // namespace
}  // namespace adtrain
