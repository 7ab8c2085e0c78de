// Kernels that start before the kernel ahead has ended, on a GPU: they wait for what it writes. A product
// with a single thread block is ahead, which lets them start at once and takes longer than they do.

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "kernels/QuantisedCase.h"
#include "kernels/norm/Norm.h"
#include "kernels/norm/NormEpsilon.h"
#include "kernels/quantised/QuantisedProduct.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using kernels::ProductWay;
using testing::plainly_dequantised;
using testing::random_matrix;
using testing::relative_error;

constexpr int64_t kRows = 8, kWidth = 128;

/// What is launched behind the product, and the same of plain operators in double precision.
struct Follower {
  std::string name;
  std::function<at::Tensor(const at::Tensor&)> run, plain;
};

std::vector<Follower> followers() {
  const auto numbers = at::device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor norm_weight = at::rand({kWidth}, numbers).add_(0.5),
                   norm_bias = at::randn({kWidth}, numbers);
  const QuantisedMatrix matrix = random_matrix(testing::Quantised::kInt8, 64, kWidth, at::kCUDA);
  const auto by = [=](ProductWay way) {
    return [=](const at::Tensor& x) { return quantised_linear_by({way}, x, matrix, {}); };
  };
  const auto product = [=](const at::Tensor& x) { return at::linear(x, plainly_dequantised(matrix)); };
  return {{"norm",
           [=](const at::Tensor& x) {
             return kernels::normed_input(x, {norm_weight, norm_bias}, kNormEpsilon, {}).y;
           },
           [=](const at::Tensor& x) {
             return at::layer_norm(x, {kWidth}, norm_weight.to(at::kDouble), norm_bias.to(at::kDouble),
                                   kNormEpsilon);
           }},
          {"product of few rows", by(ProductWay::kFewRows), product},
          {"product of many rows", by(ProductWay::kTile128x64), product}};
}

TEST(EarlyStart, WaitsForTheKernelAhead) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
  constexpr int64_t kColumns = 1 << 14;
  const QuantisedMatrix ahead = random_matrix(testing::Quantised::kInt8, kWidth, kColumns, at::kCUDA);
  for (const Follower& follower : followers()) {
    // Each time where another product was before, so that who is too early finds other numbers.
    for (int time = 0; time < 5; ++time) {
      SCOPED_TRACE(fmt::format("{}, time {}", follower.name, time));
      const at::Tensor input = at::randn({kRows, kColumns}, at::device(at::kCUDA).dtype(at::kBFloat16));
      const at::Tensor x = quantised_linear_by({ProductWay::kTile128x64}, input, ahead, {});
      const at::Tensor found = follower.run(x);
      EXPECT_LT(relative_error(found.to(at::kDouble), follower.plain(x.to(at::kDouble))), 1e-2);
    }
  }
}

}  // namespace
}  // namespace adtrain
