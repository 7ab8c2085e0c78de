#include <iostream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/Gpu.h"
#include "kernels/KernelSpeed.h"
#include "kernels/MultiheadAttentionChecks.h"
#include "kernels/attention/LibraryAttention.h"

namespace adtrain {
namespace {

using testing::Lying;
using testing::MultiheadAttentionCase;

class MultiheadAttention : public ::testing::TestWithParam<MultiheadAttentionCase> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
};

TEST_P(MultiheadAttention, IsTheReference) {
  testing::expect_head_attention_is_the_reference(GetParam(), at::kCUDA);
}

TEST_P(MultiheadAttention, OperationIsTheReferenceWithTheBitsThatItDraws) {
  if (!GetParam().block.shape.causal) GTEST_SKIP() << "networks have none that are not causal";
  testing::expect_projected_attention_is_the_reference(GetParam(), at::kCUDA);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MultiheadAttention,
                         ::testing::ValuesIn(testing::multihead_attention_cases(testing::wide_block_cases())),
                         [](const auto& tried) { return testing::name_of(tried.param); });

INSTANTIATE_TEST_SUITE_P(StreamingShapes, MultiheadAttention,
                         ::testing::ValuesIn(testing::streaming_attention_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

/// Beside libtorch's own attention, of which it is given what the plain path gives it; for people, not for
/// CTest.
class MultiheadAttentionSpeed : public ::testing::TestWithParam<MultiheadAttentionCase> {};

TEST_P(MultiheadAttentionSpeed, DISABLED_OfEachKernel) {
  const testing::MultiheadAttentionData data(GetParam(), at::kCUDA);
  const kernels::BlockShape& shape = data.shape();
  const cudaStream_t stream = testing::stream_of(at::kCUDA);
  const at::Tensor of_all = at::empty_like(data.projected()), of_apart = at::empty_like(data.queries_apart());
  const double forward =
      testing::microseconds([&] { kernels::multihead_attention(data.attention(), stream); });
  const double backward = testing::microseconds([&] {
    kernels::multihead_attention_backward(data.attention(), data.gradients(of_all, of_apart), stream);
  });

  const at::Tensor x = data.block.block.x;
  const TokenStreams streams = TokenStreams::two(shape.tokens, shape.queries, x);
  const auto from = data.views(data.projected(), data.queries_apart());
  const auto leaf = [](const at::Tensor& view) { return view.transpose(1, 2).detach().requires_grad_(); };
  const at::Tensor queries = leaf(from.queries), keys = leaf(from.keys), values = leaf(from.values);
  const double rate = GetParam().block.dropout;
  const double library = testing::microseconds([&] {
    const at::NoGradGuard no_grad;
    (void)kernels::library_attention(queries, keys, values, streams, rate);
  });
  const at::Tensor attention_output = kernels::library_attention(queries, keys, values, streams, rate);
  const double library_backward = testing::microseconds([&] {
    (void)torch::autograd::grad({attention_output}, {queries, keys, values}, {data.block.block.dy},
                                /*retain_graph=*/true);
  });
  std::cout << testing::name_of(GetParam()) << " us: forward " << forward << " (libtorch " << library
            << "), backward " << backward << " (libtorch " << library_backward << ")" << std::endl;
}

INSTANTIATE_TEST_SUITE_P(
    Benchmark, MultiheadAttentionSpeed,
    ::testing::Values(MultiheadAttentionCase{{{512, 240, 240, 128, 8, true}, 0.1}},
                      MultiheadAttentionCase{{{512, 240, 240, 128, 4, true}, 0.1}},
                      MultiheadAttentionCase{{{512, 240, 240, 128, 8, true}, 0.0}},
                      MultiheadAttentionCase{{{512, 240, 240, 128, 4, true}, 0.0}},
                      MultiheadAttentionCase{{{512, 240, 1, 128, 8, true}, 0.1}, Lying::kApart},
                      MultiheadAttentionCase{{{32, 1024, 1024, 768, 12, true}, 0.1}},
                      MultiheadAttentionCase{{{32, 1024, 1024, 768, 12, true}, 0.0}},
                      MultiheadAttentionCase{{{32, 1024, 1, 768, 12, true}, 0.1}, Lying::kApart},
                      MultiheadAttentionCase{{{512, 240, 480, 128, 8, true, 240}, 0.1}},
                      MultiheadAttentionCase{{{512, 240, 480, 128, 4, true, 240}, 0.1}},
                      MultiheadAttentionCase{{{512, 240, 240, 128, 8, true, 240}, 0.1}, Lying::kApart}),
    [](const auto& tried) { return testing::name_of(tried.param); });

}  // namespace
}  // namespace adtrain
