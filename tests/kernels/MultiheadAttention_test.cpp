#include <iostream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/Gpu.h"
#include "kernels/KernelSpeed.h"
#include "kernels/MultiheadAttentionChecks.h"
#include "kernels/StreamedAttentionChecks.h"
#include "kernels/attention/LibraryAttention.h"
#include "kernels/attention/cudnn/CudnnAttention.h"

namespace adtrain {
namespace {

using testing::Lying;
using testing::MultiheadAttentionCase;

template <class Test>
class OnGpu : public Test {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
};

class MultiheadAttention : public OnGpu<::testing::TestWithParam<MultiheadAttentionCase>> {};
class StreamedAttention : public OnGpu<::testing::Test> {};

TEST_P(MultiheadAttention, IsTheReference) {
  testing::expect_head_attention_is_the_reference(GetParam(), at::kCUDA);
}

TEST_P(MultiheadAttention, OperationIsTheReferenceWithTheBitsThatItDraws) {
  if (!GetParam().block.shape.causal) GTEST_SKIP() << "networks have none that are not causal";
  if (GetParam().block.alibi || GetParam().block.packed) {
    testing::expect_streamed_attention_is_the_reference(GetParam(), at::kCUDA);
  } else {
    testing::expect_projected_attention_is_the_reference(GetParam(), at::kCUDA);
  }
}

TEST_F(StreamedAttention, OfRotatedQueriesAndKeysIsTheReference) {
  for (const MultiheadAttentionCase& tried : testing::rotated_streaming_cases()) {
    SCOPED_TRACE(testing::name_of(tried));
    testing::expect_projected_attention_is_the_reference(tried, at::kCUDA);
  }
}

TEST_F(StreamedAttention, WithoutPenaltyOrOfFewTokensIsTheReference) {
  for (const double dropout : {0.0, 0.1}) {
    for (const bool alibi : {true, false}) {
      testing::expect_streamed_attention_is_the_reference(
          {{{2, 9, 9, 64, 2, true}, dropout, 1.0, /*padded=*/false, alibi}}, at::kCUDA);
      testing::expect_streamed_attention_is_the_reference(
          {{{3, 130, 3, 96, 3, true}, dropout, 1.0, /*padded=*/false, alibi}}, at::kCUDA);
    }
    testing::expect_streamed_attention_is_the_reference({{{2, 700, 300, 192, 3, true}, dropout}}, at::kCUDA);
  }
}

TEST_F(StreamedAttention, OfTwoStreamsIsTheReference) {
  testing::expect_streamed_attention_of_two_streams_is_the_reference(at::kCUDA, /*long_ones=*/true);
}

TEST_F(StreamedAttention, OverflowInFp16ComesOut) {
  testing::expect_overflow_comes_out(at::kCUDA);
}

TEST_F(StreamedAttention, NormsQueriesAndKeys) {
  for (const testing::NormsOfHeads norms : {testing::NormsOfHeads::kRms, testing::NormsOfHeads::kLayer}) {
    testing::expect_streamed_attention_is_the_reference(
        {{{2, 1100, 1100, 256, 4, true}, 0.0, 1.0, /*padded=*/false, /*alibi=*/true}}, at::kCUDA, norms);
    testing::expect_streamed_attention_is_the_reference(
        {{{2, 600, 600, 128, 2, true}, 0.1}, Lying::kByThirds, at::kHalf}, at::kCUDA, norms);
    testing::expect_streamed_attention_is_the_reference({{{3, 700, 300, 96, 3, true}, 0.1}}, at::kCUDA,
                                                        norms);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, MultiheadAttention,
                         ::testing::ValuesIn(testing::multihead_attention_cases(testing::wide_block_cases())),
                         [](const auto& tried) { return testing::name_of(tried.param); });

INSTANTIATE_TEST_SUITE_P(StreamingShapes, MultiheadAttention,
                         ::testing::ValuesIn(testing::streaming_attention_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

INSTANTIATE_TEST_SUITE_P(StreamingShapesInFp16, MultiheadAttention,
                         ::testing::ValuesIn(testing::in_fp16(testing::streaming_attention_cases())),
                         [](const auto& tried) { return testing::name_of(tried.param); });

INSTANTIATE_TEST_SUITE_P(ShortShapesInFp16, MultiheadAttention, ::testing::ValuesIn([] {
                           auto all = testing::in_fp16(testing::short_streaming_cases());
                           std::erase_if(all,
                                         [](const auto& tried) { return tried.lying == Lying::kWithRope; });
                           return all;
                         }()),
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
  const TokenStreams streams = TokenStreams{.context = shape.tokens, .queries = shape.queries}.with_masks(x);
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

struct LongCase {
  int64_t sequences, tokens, heads;
  kernels::DistancePenalty penalty;
  at::ScalarType type = at::kBFloat16;
  int64_t segment = 0;  ///< tokens of a packed row's segments; 0: rows are whole
  int64_t head_size = 64;
  double dropout = 0;
};

/// Beside cuDNN's and FlashAttention, at long contexts; for people, not for CTest. A product of a causal half
/// counts once.
class StreamedAttentionSpeed : public OnGpu<::testing::TestWithParam<LongCase>> {};

TEST_P(StreamedAttentionSpeed, DISABLED_BesideLibraries) {
  const auto& [sequences, tokens, heads, penalty, type, segment, head_size, dropout] = GetParam();
  TokenSegments segments;
  if (segment > 0) {
    const at::Tensor places = at::arange(tokens, at::device(at::kCUDA).dtype(at::kInt));
    segments = TokenSegments::of((places.div(segment, "floor") * segment).repeat({sequences, 1}));
  }
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(type);
  const at::Tensor projected = at::randn({sequences, tokens, 3, heads, head_size}, options);
  const at::Tensor qkv = projected.permute({2, 0, 3, 1, 4}).requires_grad_();
  const at::Tensor d_output = at::randn({sequences, tokens, heads * head_size}, options);
  const double product = static_cast<double>(sequences * heads * tokens * tokens * head_size) / 1e6;
  const auto report = [&](const char* name, auto&& attended) {
    const double forward = testing::microseconds([&] {
      const at::NoGradGuard no_grad;
      (void)attended();
    });
    const at::Tensor output = attended();
    const double backward = testing::microseconds(
        [&] { (void)torch::autograd::grad({output}, {qkv}, {d_output}, /*retain_graph=*/true); });
    std::cout << name << " us (TFLOP/s): forward " << forward << " (" << 2 * product / forward
              << "), backward " << backward << " (" << 5 * product / backward << ")" << std::endl;
  };
  std::cout << sequences << " x " << tokens << ", " << heads << " heads of " << head_size
            << (penalty == kernels::DistancePenalty::kAlibi ? ", ALiBi" : "") << ", " << c10::toString(type)
            << (segment > 0 ? ", packed segments of " + std::to_string(segment) : "")
            << (dropout > 0 ? ", dropout" : "") << std::endl;
  if (head_size <= 64) {
    report("streamed", [&] {
      return kernels::streamed_attention(qkv, tokens, penalty, dropout, /*norms=*/{},
                                         /*main_gradients=*/nullptr,
                                         {.context = tokens, .segments = segments});
    });
  }
  if (segment > 0) return;
  report("cuDNN", [&] { return kernels::cudnn_attention(qkv, penalty, dropout); });
  if (penalty == kernels::DistancePenalty::kAlibi) return;
  const kernels::AttentionOfChangingShapes without_cudnn;
  report("libtorch's FlashAttention", [&] {
    return kernels::library_attention(qkv, tokens, {.context = tokens}, /*rotary=*/{}, dropout);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Benchmark, StreamedAttentionSpeed,
    ::testing::Values(LongCase{64, 4096, 8, kernels::DistancePenalty::kAlibi},
                      LongCase{64, 4096, 8, kernels::DistancePenalty::kAlibi, at::kHalf},
                      LongCase{64, 4096, 8, kernels::DistancePenalty::kNone, at::kHalf},
                      LongCase{64, 4096, 8, kernels::DistancePenalty::kNone},
                      LongCase{256, 1024, 8, kernels::DistancePenalty::kAlibi},
                      LongCase{128, 2048, 8, kernels::DistancePenalty::kNone},
                      LongCase{256, 1024, 8, kernels::DistancePenalty::kNone},
                      LongCase{256, 1024, 8, kernels::DistancePenalty::kNone, at::kHalf},
                      LongCase{512, 512, 8, kernels::DistancePenalty::kNone},
                      LongCase{1024, 256, 8, kernels::DistancePenalty::kNone},
                      LongCase{2048, 128, 8, kernels::DistancePenalty::kNone},
                      LongCase{128, 2048, 16, kernels::DistancePenalty::kNone, at::kBFloat16, 0, 32},
                      LongCase{256, 1024, 16, kernels::DistancePenalty::kNone, at::kBFloat16, 0, 32},
                      LongCase{1024, 256, 16, kernels::DistancePenalty::kNone, at::kBFloat16, 0, 32},
                      LongCase{64, 4096, 8, kernels::DistancePenalty::kNone, at::kBFloat16, 0, 64, 0.1},
                      LongCase{256, 1024, 8, kernels::DistancePenalty::kNone, at::kBFloat16, 0, 64, 0.1},
                      LongCase{1024, 256, 8, kernels::DistancePenalty::kNone, at::kBFloat16, 0, 64, 0.1},
                      LongCase{512, 718, 4, kernels::DistancePenalty::kNone, at::kBFloat16, 0, 16},
                      LongCase{512, 718, 4, kernels::DistancePenalty::kNone, at::kBFloat16, 0, 16, 0.1},
                      LongCase{512, 240, 4, kernels::DistancePenalty::kNone, at::kHalf, 0, 16, 0.1},
                      LongCase{8, 8192, 16, kernels::DistancePenalty::kAlibi},
                      LongCase{8, 8192, 16, kernels::DistancePenalty::kNone},
                      LongCase{16, 16384, 8, kernels::DistancePenalty::kAlibi},
                      LongCase{16, 16384, 8, kernels::DistancePenalty::kNone},
                      LongCase{64, 4096, 4, kernels::DistancePenalty::kNone, at::kBFloat16, 0, 128},
                      LongCase{64, 4096, 8, kernels::DistancePenalty::kAlibi, at::kBFloat16, 4096},
                      LongCase{64, 4096, 8, kernels::DistancePenalty::kNone, at::kBFloat16, 4096},
                      LongCase{64, 4096, 8, kernels::DistancePenalty::kNone, at::kBFloat16, 500}));

}  // namespace
}  // namespace adtrain
