// A head behind a norm in one kernel, on a GPU or emulated, against the same in double precision.

#include "kernels/norm/NormedHead.h"

#include <array>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/FusedDevice.h"
#include "kernels/norm/NormEpsilon.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using kernels::NormWeights;
using testing::relative_error;

at::Tensor normed_plainly(const at::Tensor& x, const NormWeights& norm) {
  if (!norm.weight.defined()) return x;
  const at::Tensor weight = norm.weight.to(at::kDouble);
  if (norm.bias.defined())
    return at::layer_norm(x, {x.size(-1)}, weight, norm.bias.to(at::kDouble), kNormEpsilon);
  return x * at::rsqrt(x.square().mean(-1, true) + kNormEpsilon) * weight;
}

TEST(NormedHead, IsThatOfThePlainOperators) {
  const auto device = testing::fused_device();
  if (!device) GTEST_SKIP() << "no GPU here";
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const auto numbers = at::device(device->device).dtype(type);
    for (const auto& [rows, width, outputs] :
         {std::array<int64_t, 3>{1, 2048, 5}, {3, 64, 1}, {8, 1032, 17}, {33, 8, 3}}) {
      const at::Tensor weight = at::randn({outputs, width}, numbers), bias = at::randn({outputs}, numbers),
                       norm_weight = at::rand({width}, numbers).add_(0.5),
                       norm_bias = at::randn({width}, numbers);
      // A row far from 0 has the same norm of layers as one around it.
      const at::Tensor x =
          at::randn({rows, 1, width}, numbers).add_(at::randn({rows, 1, 1}, numbers).mul_(4));
      ASSERT_TRUE(kernels::normed_head_fits(x, outputs));
      for (const NormWeights& norm :
           {NormWeights{}, NormWeights{norm_weight, {}}, NormWeights{norm_weight, norm_bias}}) {
        SCOPED_TRACE(fmt::format("{} rows of {}, {} outputs, norm with{} weight and with{} bias", rows, width,
                                 outputs, norm.weight.defined() ? "" : "out",
                                 norm.bias.defined() ? "" : "out"));
        const at::Tensor found = kernels::normed_head(x, norm, weight, bias);
        const at::Tensor expected =
            at::linear(normed_plainly(x.to(at::kDouble), norm), weight.to(at::kDouble), bias.to(at::kDouble));
        ASSERT_EQ(found.scalar_type(), at::kFloat);
        ASSERT_EQ(found.sizes(), expected.sizes());
        EXPECT_LT(relative_error(found.to(at::kDouble), expected), 2e-5);
      }
    }
  }
}

TEST(NormedHead, IsForFewRowsOf16BitsAlone) {
  const at::Tensor x = at::zeros({8, 1, 64}, at::kHalf);
  EXPECT_TRUE(kernels::normed_head_fits(x, 256));
  EXPECT_FALSE(kernels::normed_head_fits(x, 257));
  EXPECT_FALSE(kernels::normed_head_fits(x.to(at::kFloat), 5));
  EXPECT_FALSE(kernels::normed_head_fits(x.narrow(-1, 0, 60), 5));
}

}  // namespace
}  // namespace adtrain
