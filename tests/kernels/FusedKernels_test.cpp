#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "kernels/FusedBlockCase.h"
#include "kernels/FusedBlockChecks.h"
#include "kernels/KernelSpeed.h"
#include "kernels/block/attention_backward/AttentionBackward.h"
#include "kernels/block/forward/BlockForward.h"
#include "kernels/block/mlp_backward/MlpBackward.h"
#include "kernels/primitives/DeviceTraits.h"
#include "kernels/primitives/DropoutMask.h"

namespace adtrain {
namespace {

using kernels::AttentionGradients;
using kernels::MlpGradients;
using testing::FusedBlockCase;
using testing::FusedBlockData;

cudaStream_t current_stream() {
  return c10::cuda::getCurrentCUDAStream();
}

class FusedKernels : public ::testing::TestWithParam<FusedBlockCase> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
    if (!kernels::DeviceTraits::of({at::kCUDA, 0}).multiplies_by_warpgroups()) GTEST_SKIP() << "no H100 here";
  }
};

TEST_P(FusedKernels, ForwardIsTheReference) {
  testing::expect_forward_is_the_reference(GetParam(), at::kCUDA);
}

TEST_P(FusedKernels, MlpBackwardIsTheReference) {
  testing::expect_mlp_backward_is_the_reference(GetParam(), at::kCUDA);
}

TEST_P(FusedKernels, AttentionBackwardIsTheReference) {
  testing::expect_attention_backward_is_the_reference(GetParam(), at::kCUDA);
}

INSTANTIATE_TEST_SUITE_P(Padded, FusedKernels, ::testing::ValuesIn(testing::padded_block_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });
INSTANTIATE_TEST_SUITE_P(Shapes, FusedKernels, ::testing::ValuesIn(testing::fused_block_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

/// The speed of one kernel at the benchmark's size; for people, not for CTest.
class FusedKernelsSpeed : public ::testing::TestWithParam<FusedBlockCase> {};

TEST_P(FusedKernelsSpeed, DISABLED_OfEachKernel) {
  FusedBlockData data(GetParam());
  const kernels::BlockShape shape = data.shape();
  const at::Tensor y = at::empty_like(data.dy), of_x1 = at::empty_like(data.dy),
                   of_x = at::empty_like(data.x);
  const auto fp32 = at::device(at::kCUDA).dtype(at::kFloat);
  const at::Tensor mlp_parts =
      at::empty({kernels::mlp_backward_parts(shape), MlpGradients::of(shape.width).total}, fp32);
  const at::Tensor attention_parts =
      at::empty({kernels::attention_backward_parts(shape), AttentionGradients::of(shape.width).total}, fp32);
  const at::Tensor carried = at::empty({kernels::attention_backward_carried(shape)}, of_x.options());
  const double forward = testing::microseconds([&] {
    kernels::block_forward(shape, data.weights(), data.keep(), data.activations(), FusedBlockData::of(y),
                           current_stream());
  });
  const double mlp = testing::microseconds([&] {
    kernels::mlp_backward(shape, data.weights(), data.keep(), data.activations(), FusedBlockData::of(data.dy),
                          FusedBlockData::of(of_x1), mlp_parts.data_ptr<float>(), current_stream());
  });
  const double attention = testing::microseconds([&] {
    kernels::attention_backward(shape, data.weights(), data.keep(), data.activations(),
                                FusedBlockData::of(of_x1), FusedBlockData::of(of_x),
                                attention_parts.data_ptr<float>(), FusedBlockData::of(carried), {},
                                current_stream());
  });
  const double sums = testing::microseconds(
      [&] { (void)testing::sum_of(mlp_parts), (void)testing::sum_of(attention_parts); });
  const at::Tensor seed = at::ones({1}, at::device(at::kCUDA).dtype(at::kLong));
  const at::Tensor sequences = at::arange(shape.sequences, seed.options());
  const kernels::MaskSource source = {kernels::KeepProbability(0.1), seed.const_data_ptr<int64_t>(), 0,
                                      sequences.const_data_ptr<int64_t>(), shape.sequences};
  const double bits = testing::microseconds([&] {
    kernels::fill_attention_dropout_mask(static_cast<uint32_t*>(data.attention_dropout_mask.data_ptr()),
                                         shape.attention_rows(), source, current_stream());
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
                                           FusedBlockCase{{512, 80, 80, 32, 4, true}, 0.1},
                                           FusedBlockCase{{512, 164, 164, 64, 4, true}, 0.1},
                                           FusedBlockCase{{512, 164, 164, 64, 4, true}, 0.1, 1.0, true},
                                           FusedBlockCase{{512, 164, 245, 64, 4, true, 81}, 0.1}),
                         [](const auto& tried) { return testing::name_of(tried.param); });

}  // namespace
}  // namespace adtrain
