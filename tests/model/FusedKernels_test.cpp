#include <array>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "model/FusedBlockCase.h"
#include "model/kernels/KeepBits.h"
#include "model/kernels/PartialSums.h"
#include "model/kernels/fused/AttentionBackward.h"
#include "model/kernels/fused/BlockForward.h"
#include "model/kernels/fused/MlpBackward.h"

namespace adtrain {
namespace {

using kernels::AttentionGradients;
using kernels::MlpGradients;
using testing::error_of;
using testing::FusedBlockCase;
using testing::FusedBlockData;
using testing::FusedBlockReference;

/// bf16 keeps 8 bits; errors of a chain of roundings stay below these shares of the norm.
constexpr double kStatisticsTolerance = 4e-3;
double value_tolerance(const FusedBlockCase& tried) {
  return tried.steep() ? 1.5e-2 : 6e-3;
}
/// A rounded query moves a score of hundreds by ones, and the weights with it.
double gradient_tolerance(const FusedBlockCase& tried) {
  return tried.steep() ? 5e-2 : 1e-2;
}

cudaStream_t current_stream() {
  return c10::cuda::getCurrentCUDAStream();
}

/// Each kernel for itself. What the MLP's backward pass reads comes from the float64 reference, rounded; what
/// the attention's reads from the forward pass, as the sums of its weights must go with the rounded scores.
class FusedKernels : public ::testing::TestWithParam<FusedBlockCase> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
};

void take_activations(FusedBlockData& data, const FusedBlockReference& reference) {
  const at::NoGradGuard no_grad;
  data.read.copy_(reference.read);
  data.log_sums.copy_(reference.log_sums);
  data.normed1.copy_(reference.normed1);
  data.inverse1.copy_(reference.inverse1);
  data.normed2.copy_(reference.normed2);
  data.inverse2.copy_(reference.inverse2);
}

at::Tensor sum_of(const at::Tensor& parts) {
  at::Tensor sum = at::zeros({parts.size(1)}, parts.options());
  kernels::add_parts(parts.data_ptr<float>(), static_cast<int>(parts.size(0)), parts.size(1),
                     sum.data_ptr<float>(), current_stream());
  return sum;
}

struct NamedPlace {
  const char* name;
  int offset;  ///< in a half's sums
};

/// What two launches of a backward pass made: the gradient of its input, and the sums for its parameters.
struct Launched {
  std::array<at::Tensor, 2> of_input, sums;

  /// `parameters`: the expected gradients of `places`, in their order.
  void expect(const at::Tensor& input, const at::Tensor* parameters, const std::array<NamedPlace, 6>& places,
              double tolerance) const {
    EXPECT_LT(error_of(of_input[0], input), tolerance);
    for (size_t k = 0; k < places.size(); ++k) {
      const at::Tensor& right = parameters[k];
      EXPECT_LT(error_of(sums[0].narrow(0, places[k].offset, right.numel()), right), tolerance)
          << places[k].name;
    }
    EXPECT_TRUE(at::equal(of_input[0], of_input[1])) << "not the same on repeat";
    EXPECT_TRUE(at::equal(sums[0], sums[1])) << "not the same on repeat";
  }
};

TEST_P(FusedKernels, ForwardIsTheReference) {
  FusedBlockData data(GetParam());
  const FusedBlockReference reference(data);
  const at::Tensor y = FusedBlockData::poisoned(data.dy.sizes());
  kernels::block_forward(GetParam().shape, data.weights(), data.keep(), data.activations(),
                         FusedBlockData::of(y), current_stream());
  EXPECT_LT(error_of(data.read, reference.read), value_tolerance(GetParam()));
  EXPECT_LT((data.log_sums - reference.log_sums).abs().max().item<double>(), GetParam().steep() ? 1.0 : 0.1);
  EXPECT_LT(error_of(data.normed1, reference.normed1), value_tolerance(GetParam()));
  EXPECT_LT(error_of(data.inverse1, reference.inverse1), kStatisticsTolerance);
  EXPECT_LT(error_of(data.normed2, reference.normed2), value_tolerance(GetParam()));
  EXPECT_LT(error_of(data.inverse2, reference.inverse2), kStatisticsTolerance);
  EXPECT_LT(error_of(y, reference.y), value_tolerance(GetParam()));

  const at::Tensor again = at::empty_like(y);
  kernels::block_forward(GetParam().shape, data.weights(), data.keep(), data.activations(),
                         FusedBlockData::of(again), current_stream());
  EXPECT_TRUE(at::equal(y, again)) << "not the same on repeat";
}

TEST_P(FusedKernels, MlpBackwardIsTheReference) {
  FusedBlockData data(GetParam());
  const FusedBlockReference reference(data);
  take_activations(data, reference);
  const auto expected = reference.backward(data.dy);

  const MlpGradients places = MlpGradients::of(GetParam().shape.width);
  Launched launched;
  for (int repeat = 0; repeat < 2; ++repeat) {
    launched.of_input[repeat] = FusedBlockData::poisoned(data.dy.sizes());
    const at::Tensor parts =
        FusedBlockData::poisoned({kernels::mlp_backward_parts(GetParam().shape), places.total}, at::kFloat);
    kernels::mlp_backward(GetParam().shape, data.weights(), data.keep(), data.activations(),
                          FusedBlockData::of(data.dy), FusedBlockData::of(launched.of_input[repeat]),
                          parts.data_ptr<float>(), current_stream());
    launched.sums[repeat] = sum_of(parts);
  }
  launched.expect(expected[0], &expected[2 + 6],
                  {{{"linear1_weight", places.linear1_weight},
                    {"linear1_bias", places.linear1_bias},
                    {"linear2_weight", places.linear2_weight},
                    {"linear2_bias", places.linear2_bias},
                    {"norm2_weight", places.norm2_weight},
                    {"norm2_bias", places.norm2_bias}}},
                  gradient_tolerance(GetParam()));
}

TEST_P(FusedKernels, AttentionBackwardIsTheReference) {
  FusedBlockData data(GetParam());
  const FusedBlockReference reference(data);
  const at::Tensor y = at::empty_like(data.dy);
  kernels::block_forward(GetParam().shape, data.weights(), data.keep(), data.activations(),
                         FusedBlockData::of(y), current_stream());
  const auto expected = reference.backward(data.dy);
  const at::Tensor of_x1 = expected[0].to(at::kBFloat16).contiguous();

  const AttentionGradients places = AttentionGradients::of(GetParam().shape.width);
  Launched launched;
  for (int repeat = 0; repeat < 2; ++repeat) {
    launched.of_input[repeat] = FusedBlockData::poisoned(data.x.sizes());
    const at::Tensor parts = FusedBlockData::poisoned(
        {kernels::attention_backward_parts(GetParam().shape), places.total}, at::kFloat);
    const at::Tensor carried =
        FusedBlockData::poisoned({kernels::attention_backward_carried(GetParam().shape)});
    kernels::attention_backward(GetParam().shape, data.weights(), data.keep(), data.activations(),
                                FusedBlockData::of(of_x1), FusedBlockData::of(launched.of_input[repeat]),
                                parts.data_ptr<float>(), FusedBlockData::of(carried), current_stream());
    launched.sums[repeat] = sum_of(parts);
  }
  launched.expect(expected[1], &expected[2],
                  {{{"in_proj_weight", places.in_proj_weight},
                    {"in_proj_bias", places.in_proj_bias},
                    {"out_proj_weight", places.out_proj_weight},
                    {"out_proj_bias", places.out_proj_bias},
                    {"norm1_weight", places.norm1_weight},
                    {"norm1_bias", places.norm1_bias}}},
                  gradient_tolerance(GetParam()));
}

std::vector<FusedBlockCase> cases() {
  std::vector<FusedBlockCase> all;
  for (const double dropout : {0.0, 0.1}) {
    for (const bool causal : {true, false}) {
      all.push_back({{5, 240, 240, 64, 4, causal}, dropout});
      all.push_back({{300, 80, 80, 32, 4, causal}, dropout});  // more sequences than thread blocks
      all.push_back({{5, 240, 1, 64, 4, causal}, dropout});
      all.push_back({{3, 256, 256, 64, 4, causal}, dropout});
      all.push_back({{4, 101, 37, 64, 2, causal}, dropout});
      all.push_back({{7, 33, 33, 32, 2, causal}, dropout});
      all.push_back({{2, 256, 17, 32, 1, causal}, dropout});
      all.push_back({{3, 7, 3, 64, 8, causal}, dropout});
      all.push_back({{1, 1, 1, 32, 4, causal}, dropout});
    }
    all.push_back({{3, 240, 240, 64, 4, true}, dropout, 4.0});

    all.push_back({{5, 240, 480, 64, 4, true, 240}, dropout});
    all.push_back({{5, 240, 240, 64, 4, true, 240}, dropout});
    all.push_back({{300, 80, 160, 32, 4, true, 80}, dropout});
    all.push_back({{300, 80, 80, 32, 4, true, 80}, dropout});
    all.push_back({{3, 256, 512, 64, 4, true, 256}, dropout});
    all.push_back({{4, 101, 1, 64, 2, true, 101}, dropout});
    all.push_back({{4, 101, 137, 64, 2, true, 101}, dropout});
    all.push_back({{7, 33, 66, 32, 2, true, 33}, dropout});
    all.push_back({{2, 256, 17, 32, 1, true, 256}, dropout});
    all.push_back({{3, 250, 500, 64, 8, true, 250}, dropout});
    all.push_back({{3, 7, 3, 64, 8, true, 7}, dropout});
    all.push_back({{1, 1, 2, 32, 4, true, 1}, dropout});
    all.push_back({{3, 240, 480, 64, 4, true, 240}, dropout, 4.0});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, FusedKernels, ::testing::ValuesIn(cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

/// The speed of one kernel at the benchmark's size; for people, not for CTest.
class FusedKernelsSpeed : public ::testing::TestWithParam<FusedBlockCase> {};

template <class Launch>
double microseconds(Launch launch) {
  constexpr int kWarmUps = 3, kRepeats = 20;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  for (int k = 0; k < kWarmUps; ++k) launch();
  cudaEventRecord(begin, current_stream());
  for (int k = 0; k < kRepeats; ++k) launch();
  cudaEventRecord(end, current_stream());
  cudaEventSynchronize(end);
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  return 1e3 * milliseconds / kRepeats;
}

TEST_P(FusedKernelsSpeed, DISABLED_OfEachKernel) {
  FusedBlockData data(GetParam());
  const kernels::BlockShape& shape = GetParam().shape;
  const at::Tensor y = at::empty_like(data.dy), of_x1 = at::empty_like(data.dy),
                   of_x = at::empty_like(data.x);
  const auto fp32 = at::device(at::kCUDA).dtype(at::kFloat);
  const at::Tensor mlp_parts =
      at::empty({kernels::mlp_backward_parts(shape), MlpGradients::of(shape.width).total}, fp32);
  const at::Tensor attention_parts =
      at::empty({kernels::attention_backward_parts(shape), AttentionGradients::of(shape.width).total}, fp32);
  const at::Tensor carried = at::empty({kernels::attention_backward_carried(shape)}, of_x.options());
  const double forward = microseconds([&] {
    kernels::block_forward(shape, data.weights(), data.keep(), data.activations(), FusedBlockData::of(y),
                           current_stream());
  });
  const double mlp = microseconds([&] {
    kernels::mlp_backward(shape, data.weights(), data.keep(), data.activations(), FusedBlockData::of(data.dy),
                          FusedBlockData::of(of_x1), mlp_parts.data_ptr<float>(), current_stream());
  });
  const double attention = microseconds([&] {
    kernels::attention_backward(shape, data.weights(), data.keep(), data.activations(),
                                FusedBlockData::of(of_x1), FusedBlockData::of(of_x),
                                attention_parts.data_ptr<float>(), FusedBlockData::of(carried),
                                current_stream());
  });
  const double sums = microseconds([&] { (void)sum_of(mlp_parts), (void)sum_of(attention_parts); });
  const at::Tensor seed = at::ones({1}, at::device(at::kCUDA).dtype(at::kLong));
  const double bits = microseconds([&] {
    kernels::fill_keep_bits(static_cast<uint32_t*>(data.attention_bits.data_ptr()),
                            data.attention_bits.numel(), kernels::KeepProbability(0.1),
                            seed.data_ptr<int64_t>(), 0, current_stream());
  });
  std::cout << testing::name_of(GetParam()) << " us: forward " << forward << ", MLP backward " << mlp
            << ", attention backward " << attention << ", partial sums " << sums << ", attention's keep bits "
            << bits << std::endl;
}

INSTANTIATE_TEST_SUITE_P(Benchmark, FusedKernelsSpeed,
                         ::testing::Values(FusedBlockCase{{512, 240, 240, 64, 4, true}, 0.1},
                                           FusedBlockCase{{512, 240, 240, 64, 4, true}, 0.0},
                                           FusedBlockCase{{512, 240, 1, 64, 4, true}, 0.1},
                                           FusedBlockCase{{512, 240, 480, 64, 4, true, 240}, 0.1},
                                           FusedBlockCase{{512, 240, 240, 64, 4, true, 240}, 0.1},
                                           FusedBlockCase{{512, 80, 80, 32, 4, true}, 0.1}),
                         [](const auto& tried) { return testing::name_of(tried.param); });

TEST(KeepBits, AreIndependentBitsOfTheAskedProbability) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  constexpr int64_t kWords = 1 << 20;
  const auto words = at::device(at::kCUDA).dtype(at::kInt);
  const at::Tensor seed = at::randint(1 << 30, {1}, at::device(at::kCUDA).dtype(at::kLong));
  SCOPED_TRACE(seed.item<int64_t>());
  for (const double rate : {0.0, 0.1, 0.25, 0.5, 0.9, 1.0}) {
    const kernels::KeepProbability keep(rate);
    EXPECT_NEAR(keep.value(), 1 - rate, 0.5 / 1024);
    const auto draw = [&](uint64_t stream_of_seed) {
      at::Tensor drawn = at::empty({kWords}, words);
      kernels::fill_keep_bits(static_cast<uint32_t*>(drawn.data_ptr()), kWords, keep,
                              seed.data_ptr<int64_t>(), stream_of_seed, current_stream());
      const at::Tensor places = at::arange(32, words);
      return drawn.unsqueeze(-1).bitwise_right_shift(places).bitwise_and(1).to(at::kFloat);  // (words, 32)
    };
    const at::Tensor bits = draw(3);
    EXPECT_TRUE(at::equal(bits, draw(3)));
    const double p = keep.value(), deviation = std::sqrt(p * (1 - p));
    const double sigma = deviation / std::sqrt(32.0 * kWords);
    EXPECT_NEAR(bits.mean(at::kDouble).item<double>(), p, 5 * sigma) << rate;
    // Each place of a word for itself, and pairs: neighbours in a word, in neighbouring words, of two
    // streams.
    EXPECT_LE((bits.mean({0}, false, at::kDouble) - p).abs().max().item<double>(),
              6 * deviation / std::sqrt(kWords));
    const at::Tensor centred = bits - p;
    const auto correlated = [&](const at::Tensor& a, const at::Tensor& b) {
      return std::abs((a * b).mean(at::kDouble).item<double>());
    };
    const double bound = 5 * deviation * deviation / std::sqrt(31.0 * (kWords - 64)) + 1e-9;
    EXPECT_LT(correlated(centred.narrow(1, 0, 31), centred.narrow(1, 1, 31)), bound) << rate;
    for (const int64_t apart : {1, 64}) {
      EXPECT_LT(correlated(centred.narrow(0, 0, kWords - apart), centred.narrow(0, apart, kWords - apart)),
                bound);
    }
    EXPECT_LT(correlated(centred, draw(4) - p), bound) << rate;
  }
}

}  // namespace
}  // namespace adtrain
