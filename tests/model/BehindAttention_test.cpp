#include <mutex>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "model/RandomBatch.h"
#include "model/kernels/rows/BlockHalves.h"

namespace adtrain {
namespace {

using testing::relative_error;

void seed_gpu(uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::Device(at::kCUDA, 0));
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

/// The second half by itself, with dropout.
class BehindAttention : public ::testing::Test {
 protected:
  static constexpr int64_t kWidth = 96, kInner = 4 * kWidth, kRows = 37, kSequences = 5, kNumber = 3;
  static constexpr double kRate = 0.25;

  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
    const auto like = at::TensorOptions(at::Device(at::kCUDA, 0)).dtype(at::kHalf);
    read = at::randn({kSequences, kRows, kWidth}, like);
    residual = at::randn({kSequences, kRows, kWidth}, like);
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{kWidth, kWidth},
                                                                               {kWidth},
                                                                               {kWidth},
                                                                               {kWidth},
                                                                               {kInner, kWidth},
                                                                               {kInner},
                                                                               {kWidth, kInner},
                                                                               {kWidth},
                                                                               {kWidth},
                                                                               {kWidth}}) {
      parameters.push_back(at::randn(shape, like) * (shape.size() > 1 ? 0.1 : 1.0));
    }
  }

  /// The factors of dropout at the three places, (B, rows, …), as the pass draws them.
  static std::vector<at::Tensor> factors(const kernels::BlockPass& pass) {
    const int64_t words = kSequences * kRows * kWidth / 32;
    const at::Tensor drawn = at::empty({6 * words}, pass.seed.options().dtype(at::kInt));
    kernels::fill_keep_bits(static_cast<uint32_t*>(drawn.data_ptr()), drawn.numel(), pass.keep_hidden,
                            pass.seed.data_ptr<int64_t>(), kNumber, c10::cuda::getCurrentCUDAStream());
    const at::Tensor bits =
        drawn.unsqueeze(1).bitwise_right_shift(at::arange(32, drawn.options())).bitwise_and(1).flatten();
    const at::Tensor scaled = bits.to(at::kDouble) * pass.keep_hidden.scale();
    const auto part = [&](int64_t first, int64_t count) {
      return scaled.narrow(0, 32 * first, 32 * count).view({kSequences, kRows, -1});
    };
    return {part(0, words), part(words, 4 * words), part(5 * words, words)};
  }

  std::vector<at::Tensor> leaves(at::ScalarType type) const {
    std::vector<at::Tensor> all = {read, residual};
    all.insert(all.end(), parameters.begin(), parameters.end());
    for (at::Tensor& tensor : all)
      tensor = tensor.to(type, /*non_blocking=*/false, /*copy=*/true).set_requires_grad(true);
    return all;
  }
  static at::Tensor half(const std::vector<at::Tensor>& of, const kernels::BlockPass& pass) {
    return kernels::behind_attention(of[0], of[1], {of.begin() + 2, of.end()}, kNumber, pass);
  }

  at::Tensor read, residual;
  std::vector<at::Tensor> parameters;
};

TEST_F(BehindAttention, IsThatOfTorchsOperatorsWithTheSameDropout) {
  const kernels::BlockPass pass(read, 4, 0.0, kRate, nullptr);
  const std::vector<at::Tensor> exact = leaves(at::kDouble), found = leaves(at::kHalf);
  const std::vector<at::Tensor> factor = factors(pass);
  EXPECT_NEAR((factor[1] != 0).to(at::kDouble).mean().item<double>(), 1 - kRate, 0.01);
  const auto* p = exact.data() + 2;
  const at::Tensor y =
      at::layer_norm(exact[1] + at::linear(exact[0], p[0], p[1]) * factor[0], {kWidth}, p[2], p[3]);
  const at::Tensor inner = at::gelu(at::linear(y, p[4], p[5])) * factor[1];
  const at::Tensor expected =
      at::layer_norm(y + at::linear(inner, p[6], p[7]) * factor[2], {kWidth}, p[8], p[9]);
  const at::Tensor d_y = at::randn(residual.sizes(), residual.options());
  expected.backward(d_y.to(at::kDouble));

  const at::Tensor out = half(found, pass);
  EXPECT_LT(relative_error(out.detach().to(at::kDouble), expected.detach()), 1e-2);
  out.backward(d_y);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_LT(relative_error(found[i].grad().to(at::kDouble), exact[i].grad()), 1e-2) << "gradient " << i;
  }
}

TEST_F(BehindAttention, ReplayedGraphsDrawAnewFromTheGenerator) {
  const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool());
  const std::vector<at::Tensor> inputs = leaves(at::kHalf);
  const auto run = [&] { return half(inputs, kernels::BlockPass(read, 4, 0.0, kRate, nullptr)).detach(); };
  run();  // not to load kernels while the graph is being captured
  at::cuda::CUDAGraph graph;
  graph.register_generator_state(at::globalContext().defaultGenerator(read.device()));
  c10::cuda::device_synchronize();
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  const at::Tensor captured = run();
  graph.capture_end();

  const auto replay = [&](uint64_t seed) {
    seed_gpu(seed);
    graph.replay();
    return captured.clone();
  };
  const at::Tensor first = replay(7);
  EXPECT_FALSE(first.equal(replay(8)));
  EXPECT_TRUE(first.equal(replay(7)));
  seed_gpu(7);
  EXPECT_TRUE(first.equal(run()));
}

}  // namespace
}  // namespace adtrain
