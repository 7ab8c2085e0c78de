#include <iostream>

#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "kernels/KernelSpeed.h"
#include "kernels/PreNormChecks.h"

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

/// The speed of one kernel at the benchmark's size; for people, not for CTest.
class PreNormKernelsSpeed : public ::testing::TestWithParam<testing::FusedBlockCase> {};

TEST_P(PreNormKernelsSpeed, DISABLED_OfEachKernel) {
  const testing::PreNormAttentionData data(GetParam(), at::kCUDA);
  const kernels::BlockShape& shape = GetParam().shape;
  const auto& of = testing::FusedBlockData::of;
  const at::Tensor &dy = data.block.dy, &x = data.block.x;
  const at::Tensor of_x1 = at::empty_like(dy), of_normed = at::empty_like(x);
  const auto parts = [&](int count, int size) {
    return at::empty({count, size}, at::device(at::kCUDA).dtype(at::kFloat));
  };
  const cudaStream_t stream = testing::stream_of(at::kCUDA);

  const double attention = testing::microseconds(
      [&] { kernels::pre_norm_attention(shape, data.attention(), of(x), of(of_x1), stream); });
  const at::Tensor attention_parts = parts(kernels::pre_norm_attention_backward_parts(shape),
                                           kernels::PreNormAttentionGradients::of(shape.width).total);
  const at::Tensor carried = at::empty({kernels::attention_backward_carried(shape)}, x.options());
  const double attention_backward = testing::microseconds([&] {
    kernels::pre_norm_attention_backward(shape, data.attention(), of(dy), of(of_normed),
                                         attention_parts.data_ptr<float>(), of(carried), {}, stream);
  });

  const int64_t rows = shape.all_rows();
  const auto weight = [&](int64_t out, int64_t in) { return at::randn({out, in}, x.options()).mul_(0.1); };
  const at::Tensor w1 = weight(shape.inner(), shape.width), w2 = weight(shape.inner(), shape.width),
                   w3 = weight(shape.width, shape.inner());
  const kernels::SwigluWeights weights = {of(w1), of(w2), of(w3)};
  const double swiglu = testing::microseconds(
      [&] { kernels::swiglu(rows, shape.width, weights, of(dy), of(dy), of(of_x1), stream); });
  const at::Tensor swiglu_parts = parts(kernels::swiglu_backward_parts(rows, shape.width),
                                        kernels::SwigluGradients::of(shape.width).total);
  const at::Tensor terms =
      at::empty({kernels::swiglu_backward_terms(shape.width), rows, shape.width}, x.options());
  const double swiglu_backward = testing::microseconds([&] {
    kernels::swiglu_backward(rows, shape.width, weights, of(dy), of(dy), of(terms),
                             swiglu_parts.data_ptr<float>(), stream);
  });
  std::cout << testing::name_of(GetParam()) << " us: attention " << attention << ", backward "
            << attention_backward << ", SwiGLU " << swiglu << ", backward " << swiglu_backward << std::endl;
}

INSTANTIATE_TEST_SUITE_P(Benchmark, PreNormKernelsSpeed,
                         ::testing::Values(testing::FusedBlockCase{{512, 240, 240, 64, 4, true}, 0.1},
                                           testing::FusedBlockCase{{512, 240, 240, 64, 4, true}, 0.0},
                                           testing::FusedBlockCase{{512, 240, 480, 64, 4, true, 240}, 0.1},
                                           testing::FusedBlockCase{{512, 200, 400, 64, 2, true, 200}, 0.0},
                                           testing::FusedBlockCase{{512, 80, 160, 32, 2, true, 80}, 0.0}),
                         [](const auto& tried) { return testing::name_of(tried.param); });

}  // namespace
}  // namespace adtrain
