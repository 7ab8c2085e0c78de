#include <mutex>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "kernels/PostNormBlockChecks.h"

namespace adtrain {
namespace {

class PostNormSublayers : public ::testing::TestWithParam<testing::BlockCase> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
};

TEST_P(PostNormSublayers, AreTheReferenceWithTheBitsThatTheyDraw) {
  testing::PostNormBlockCheck(GetParam(), at::kCUDA).run();
}

void seed_gpu(uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::Device(at::kCUDA, 0));
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

TEST_P(PostNormSublayers, ReplayedGraphsDrawAnewFromTheGenerator) {
  if (GetParam().hidden_rate == 0) GTEST_SKIP() << "nothing is drawn";
  const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool());
  const testing::PostNormBlockCheck block(GetParam(), at::kCUDA);
  const auto run = [&] { return block.output(); };
  run();  // not to load kernels while the graph is being captured
  at::cuda::CUDAGraph graph;
  graph.register_generator_state(at::globalContext().defaultGenerator(at::Device(at::kCUDA, 0)));
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

INSTANTIATE_TEST_SUITE_P(Shapes, PostNormSublayers,
                         ::testing::ValuesIn(testing::post_norm_cases_by_sublayers()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

/// So many tokens that GELU is in the products' epilogues.
INSTANTIATE_TEST_SUITE_P(
    ManyTokens, PostNormSublayers,
    ::testing::Values(testing::BlockCase{{16, 521, 521, 128, 4, true}, 0.1, 0.25, 512, true},
                      testing::BlockCase{{16, 521, 521, 128, 4, true}, 0.0, 0.0, 512, true, at::kHalf}),
    [](const auto& tried) { return testing::name_of(tried.param); });

}  // namespace
}  // namespace adtrain
