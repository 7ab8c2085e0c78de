#include "kernels/dropout/RowDropout.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/DropoutDraw.h"
#include "kernels/FusedBlockChecks.h"
#include "kernels/FusedDevice.h"
#include "kernels/dropout/Dropout.h"

namespace adtrain {
namespace {

using kernels::DropoutScope;
using kernels::DropoutStream;

/// A GPU, or the emulated one, drops what the CPU drops.
TEST(RowDropout, KeepsOnAGpuWhatItKeepsOnTheCpu) {
  if (!testing::fused_device()) GTEST_SKIP() << "no GPU here";
  const at::Device device = testing::fused_device()->device;
  const at::Tensor seed = at::randint(1 << 30, {1}, at::kLong), sequences = at::tensor({4, 0, 9}, at::kLong);
  SCOPED_TRACE(seed.item<int64_t>());
  const at::Tensor seed_there = seed.to(device), sequences_there = sequences.to(device);
  constexpr uint64_t kPlace = 6;
  for (const auto& [type, name] :
       {std::pair(at::kFloat, kernels::FloatType::kFloat), std::pair(at::kHalf, kernels::FloatType::kHalf),
        std::pair(at::kBFloat16, kernels::FloatType::kBFloat16)}) {
    for (const int64_t width : {37, 72, 264, 512}) {
      for (const double rate : {0.3, 1.0}) {
        const at::Tensor x = at::randn({3, 11, width}).to(type);
        DropoutStream stream = {seed, sequences, kPlace};
        const DropoutScope scope(stream);
        const at::Tensor expected = kernels::dropout(x, rate);
        EXPECT_EQ(stream.next, kPlace + 1);
        const at::Tensor there = x.to(device), found = at::empty_like(there);
        kernels::drop_rows(there.const_data_ptr(),
                           {.rows = 3 * 11,
                            .width = static_cast<int>(width),
                            .rows_of_sequence = 11,
                            .type = name,
                            .rate = kernels::DropoutRate(rate),
                            .seed = seed_there.const_data_ptr<int64_t>(),
                            .place = kPlace,
                            .sequences = sequences_there.const_data_ptr<int64_t>()},
                           found.data_ptr(), testing::stream_of(device));
        // Products are rounded once there, and factors before them here.
        EXPECT_TRUE(at::equal(found.cpu().eq(0), expected.eq(0))) << width;
        EXPECT_TRUE(at::allclose(found.cpu(), expected, 1e-2, 0)) << width;
        if (rate < 1) {
          EXPECT_GT(expected.ne(0).sum().item<int64_t>(), 0);
        }
      }
    }
  }
}

TEST(RowDropout, IsAnOperationWithGradientsOnAGpu) {
  if (!testing::fused_device() || testing::fused_device()->device.is_cpu()) GTEST_SKIP() << "no GPU here";
  const at::Device device = testing::fused_device()->device;
  const at::Tensor x = at::randn({5, 24, 7}), d_y = at::randn({5, 7, 24});
  const at::Tensor seed = at::randint(1 << 30, {1}, at::kLong), sequences = at::arange(5, at::kLong);
  const auto run = [&](const at::Device& on) {
    DropoutStream stream = {seed.to(on), sequences.to(on)};
    const DropoutScope scope(stream);
    const at::Tensor leaf = x.to(on).detach().requires_grad_();
    const at::Tensor y = kernels::dropout(leaf.transpose(1, 2), 0.3);
    y.backward(d_y.to(on));
    return std::vector{y.detach().cpu(), leaf.grad().cpu()};
  };
  const std::vector<at::Tensor> found = run(device), expected = run(at::kCPU);
  for (size_t k = 0; k < found.size(); ++k) EXPECT_TRUE(at::allclose(found[k], expected[k], 1e-6, 0)) << k;
}

}  // namespace
}  // namespace adtrain
