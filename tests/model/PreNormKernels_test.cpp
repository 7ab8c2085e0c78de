#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "model/PreNormChecks.h"

namespace adtrain {
namespace {

/// Each kernel for itself; small ones run emulated, too.
class PreNormKernels : public ::testing::TestWithParam<testing::FusedBlockCase> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
};

TEST_P(PreNormKernels, AttentionIsTheReference) {
  testing::expect_pre_norm_attention_is_the_reference(GetParam(), at::kCUDA);
}

TEST_P(PreNormKernels, AttentionBackwardIsTheReference) {
  testing::expect_pre_norm_attention_backward_is_the_reference(GetParam(), at::kCUDA);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PreNormKernels, ::testing::ValuesIn(testing::fused_block_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

class PreNormRows : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
};

TEST_P(PreNormRows, SwigluIsTheReference) {
  for (const int rows : {1, 31, 512, 4096, 100'003}) {
    SCOPED_TRACE(rows);
    testing::expect_swiglu_is_the_reference(rows, GetParam(), at::kCUDA);
  }
}

TEST_P(PreNormRows, RmsNormIsTheReference) {
  for (const double dropout : {0.0, 0.1}) {
    testing::expect_rms_norm_is_the_reference({512, 160, GetParam(), GetParam() / 32, 160, dropout},
                                              at::kCUDA);
    testing::expect_rms_norm_is_the_reference({300, 81, GetParam(), 1, 1, dropout}, at::kCUDA);
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, PreNormRows, ::testing::Values(32, 64));

}  // namespace
}  // namespace adtrain
