// What goes on between products, against the same mathematics in torch's operators, in double precision.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/FlatLayout.h"
#include "base/Gpu.h"
#include "kernels/MatrixOperation.h"
#include "kernels/activation/Activation.h"
#include "kernels/gemm/Columns.h"
#include "kernels/mlp/GeluLayer.h"
#include "kernels/mlp/GeluProducts.h"
#include "kernels/norm/Norm.h"
#include "kernels/primitives/DeviceTraits.h"
#include "kernels/rope/Rope.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using kernels::GeluKind;
using kernels::KeptElements;
using testing::relative_error;

constexpr double kEpsilon = 1e-5;

struct Case {
  at::ScalarType type;
  int64_t width;
  double rate;
};

at::TensorOptions on_gpu(at::ScalarType type) {
  return at::TensorOptions(at::Device(at::kCUDA, 0)).dtype(type);
}

/// Random dropout of a matrix, as the kernels and as plain operators take it.
struct Mask {
  Mask(at::IntArrayRef shape, double rate) : factors(at::ones(shape, on_gpu(at::kDouble))) {
    if (rate == 0) return;
    kept.scale = static_cast<float>(1 / (1 - rate));
    const at::Tensor keep = at::rand(shape, on_gpu(at::kFloat)).ge(rate);
    const at::Tensor places =
        at::bitwise_left_shift(at::ones({8}, on_gpu(at::kLong)), at::arange(8, on_gpu(at::kLong)));
    kept.bits = (keep.view({-1, 8}) * places).sum(1).to(at::kByte);
    factors = keep.to(at::kDouble) * kept.scale;
  }
  KeptElements kept;
  at::Tensor factors;
};

class MatrixRows : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }

  static at::Tensor random(at::IntArrayRef shape) { return at::randn(shape, on_gpu(GetParam().type)); }
  static at::Tensor leaf(const at::Tensor& x) { return x.to(at::kDouble).set_requires_grad(true); }

  /// Sums that are not zero at first.
  static at::Tensor sums_of(int64_t size) { return at::randn({size}, on_gpu(at::kFloat)); }

  static void expect_near(const char* what, const at::Tensor& found, const at::Tensor& expected) {
    const double tolerance = GetParam().type == at::kHalf ? 4e-3 : 3e-2;  // a few times the rounding error
    EXPECT_LT(relative_error(found.to(at::kDouble), expected.detach()), tolerance) << what;
  }
};

TEST_P(MatrixRows, NormedSumIsThatOfTorchsOperators) {
  const auto [type, width, rate] = GetParam();
  for (const auto& [sequences, tokens] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {5, 613}}) {
    SCOPED_TRACE(::testing::Message() << sequences << " x " << tokens);
    const std::vector<int64_t> shape = {sequences, tokens, width};
    const at::Tensor x = random(shape), product = random(shape), d_y = random(shape);
    const at::Tensor bias = random({width}), weight = random({width}), norm_bias = random({width});
    const Mask mask(shape, rate);
    const std::vector<at::Tensor> leaves = {leaf(x), leaf(product), leaf(bias), leaf(weight),
                                            leaf(norm_bias)};
    const at::Tensor expected = at::layer_norm(leaves[0] + (leaves[1] + leaves[2]) * mask.factors, {width},
                                               leaves[3], leaves[4], kEpsilon);
    expected.backward(d_y.to(at::kDouble));

    const FlatLayout layout({width, width, width});
    const at::Tensor before = sums_of(layout.total());
    const auto run = [&](const at::Tensor& d_parameters) {
      const auto sum = kernels::normed_sum(x, product, bias, weight, norm_bias, kEpsilon, mask.kept);
      const auto [d_x, d_product] = kernels::normed_sum_backward(d_y, sum, weight, mask.kept, d_parameters);
      return std::vector<at::Tensor>{sum.y, d_x, d_product, d_parameters};
    };
    const std::vector<at::Tensor> found = run(before.clone()), again = run(before.clone());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(again[i])) << "result " << i;
    expect_near("y", found[0], expected);
    expect_near("d_x", found[1], leaves[0].grad());
    expect_near("d_product", found[2], leaves[1].grad());
    for (size_t parameter = 0; parameter < 3; ++parameter) {
      const auto of_parameter = [&](const at::Tensor& flat) {
        return flat.narrow(0, layout.offset(parameter), width).to(at::kDouble);
      };
      expect_near("parameters", of_parameter(found[3]), leaves[2 + parameter].grad() + of_parameter(before));
    }
  }
}

TEST_P(MatrixRows, BiasedGeluIsThatOfTorchsOperators) {
  const auto [type, width, rate] = GetParam();
  for (const int64_t rows : {1, 21, 3065}) {
    SCOPED_TRACE(::testing::Message() << rows << " rows");
    const at::Tensor product = random({rows, width}), bias = random({width}), d_y = random({rows, width});
    const Mask mask({rows, width}, rate);
    const at::Tensor exact_product = leaf(product), exact_bias = leaf(bias);
    const at::Tensor expected = at::gelu(exact_product + exact_bias) * mask.factors;
    expected.backward(d_y.to(at::kDouble));

    const at::Tensor before = sums_of(width), d_bias = before.clone(), d_bias_again = before.clone();
    expect_near("y", kernels::biased_gelu(product, bias, mask.kept), expected);
    const at::Tensor d_product = kernels::biased_gelu_backward(d_y, product, bias, mask.kept, d_bias);
    expect_near("d_product", d_product, exact_product.grad());
    expect_near("d_bias", d_bias, exact_bias.grad() + before);
    EXPECT_TRUE(d_product.equal(kernels::biased_gelu_backward(d_y, product, bias, mask.kept, d_bias_again)));
    EXPECT_TRUE(d_bias.equal(d_bias_again));
  }
}

/// Few rows, whose GELU has a kernel of its own, and so many that it is in the products' epilogues; with
/// dropout there where tiles of columns are whole.
class GeluLayers : public MatrixRows {
 protected:
  static void expect_reference(int64_t rows, int64_t inner, GeluKind kind) {
    SCOPED_TRACE(::testing::Message() << rows << " rows, " << inner << " hidden units");
    const auto [type, width, rate] = GetParam();
    const at::Tensor x = random({rows, 1, width}), weight = random({inner, width}) / 16,
                     bias = random({inner}), next = random({width, inner}) / 16,
                     d_out = random({rows, 1, width});
    const Mask mask({rows, inner}, rate);
    const at::Tensor exact_x = x.to(at::kDouble).squeeze(1), exact_bias = leaf(bias),
                     product = at::linear(exact_x, weight.to(at::kDouble)).set_requires_grad(true),
                     y = at::gelu(product + exact_bias, kind == GeluKind::kTanh ? "tanh" : "none") *
                         mask.factors;
    at::linear(y, next.to(at::kDouble)).backward(d_out.to(at::kDouble).squeeze(1));

    const bool exact = kind == GeluKind::kExact, large = rows > 1000,
               whole_tiles = inner % kernels::kGeluTileColumns == 0;
    const bool hopper = kernels::DeviceTraits::of(x.device()).multiplies_by_warpgroups();
    const auto pass = [&, before = sums_of(inner)] {
      const kernels::GeluLayer layer(x, weight, bias, mask.kept, kernels::Autotuning::kNo, kind);
      EXPECT_EQ(layer.in_epilogue(), hopper && large && (rate == 0 || (whole_tiles && exact)));
      const at::Tensor d_bias = before.clone(), d_product = layer.backward(d_out, next, bias, d_bias);
      return std::vector<at::Tensor>{layer.y(), d_product, d_bias, d_bias - before};
    };
    const std::vector<at::Tensor> found = pass(), again = pass();
    expect_near("y", found[0], y);
    expect_near("d_product", found[1], product.grad());
    expect_near("d_bias", found[3], exact_bias.grad());
    if (type == at::kBFloat16) {
      EXPECT_LT(relative_error(found[1].to(at::kDouble), product.grad()), 8e-3)
          << "with derivatives of 8 bits";
    }
    EXPECT_EQ(found[1].masked_select(mask.factors.eq(0)).count_nonzero().item<int64_t>(), 0);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(again[i])) << i;
  }
};

TEST_P(GeluLayers, AreTorchsOperators) {
  const int64_t width = GetParam().width, whole_tiles = (width / 64 + 1) * 128;
  for (const int64_t inner : {2 * width + 8, whole_tiles}) {
    for (const int64_t rows : {int64_t{21}, std::max<int64_t>(3065, 600'000'077 / (width * inner))}) {
      for (const GeluKind kind : {GeluKind::kExact, GeluKind::kTanh}) expect_reference(rows, inner, kind);
    }
  }
}

TEST_P(MatrixRows, JoinedColumnsStandSideBySide) {
  const int64_t width = GetParam().width;
  for (const int64_t count : {1, 2, 3}) {
    for (const int64_t rows : {1, 21, 3065}) {
      SCOPED_TRACE(::testing::Message() << count << " of " << rows << " rows");
      std::vector<at::Tensor> matrices;
      for (int64_t i = 0; i < count; ++i) matrices.push_back(random({rows, width}));
      const at::Tensor before = sums_of(count * width), sums = before.clone();
      const at::Tensor joined = kernels::joined_columns(matrices, sums);
      EXPECT_TRUE(joined.equal(at::cat(matrices, 1)));
      EXPECT_LT(relative_error(sums, joined.to(at::kDouble).sum(0) + before), 1e-5);
    }
  }
}

TEST_P(MatrixRows, ViewsAreReadAsTheyStand) {
  const auto [type, width, rate] = GetParam();
  const at::Tensor wide = random({4, 9, width}), product = random({4, 2, width}), vector = random({width});
  const Mask mask({4, 2, width}, rate);
  const auto of = [&](const at::Tensor& x, const at::Tensor& branch) {
    return kernels::normed_sum(x, branch, vector, vector, vector, kEpsilon, mask.kept).y;
  };
  const at::Tensor rotated = product.transpose(0, 1).contiguous().transpose(0, 1);
  EXPECT_TRUE(of(wide.narrow(1, 7, 2), rotated).equal(of(wide.narrow(1, 7, 2).contiguous(), product)));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    // Each way to share a row out over threads, with and without idle ones.
    for (const int64_t width : {8, 64, 96, 256, 264, 512, 768, 1000, 1024, 1032, 4096}) {
      for (const double rate : {0.0, 0.1}) all.push_back({type, width, rate});
    }
  }
  return all;
}

/// The second of a cluster's two rows of tiles is none where their number is odd.
TEST_P(GeluLayers, WriteNoSumsOfTilesThatDoNotExist) {
  const auto [type, width, rate] = GetParam();
  const int64_t rows = 3 * kernels::kGeluTileRows - 7, inner = 2 * width;
  if (!kernels::DeviceTraits::of({at::kCUDA, 0}).multiplies_by_warpgroups()) GTEST_SKIP() << "no H100 here";
  const at::Tensor x = random({rows, width}), weight = random({inner, width}) / 16, bias = random({inner}),
                   d_out = random({rows, width}), next = random({width, inner}) / 16,
                   y = at::empty({rows, inner}, x.options()), d_sum = at::empty_like(y);
  const kernels::MatrixShape shape = kernels::shape_of(y);
  const at::Tensor slopes = at::empty({kernels::gelu_slopes_bytes(shape)}, x.options().dtype(at::kByte));
  kernels::gelu_product({shape,
                         static_cast<int>(width),
                         kernels::vectors_of(x),
                         kernels::vectors_of(weight),
                         kernels::vectors_of(bias),
                         GeluKind::kExact,
                         {nullptr, 1},
                         slopes.data_ptr(),
                         kernels::vectors_of(y),
                         kernels::processors()},
                        kernels::current_stream());
  const int64_t tiles = kernels::gelu_product_parts(shape);
  const at::Tensor parts = at::full({tiles + 1, inner}, NAN, on_gpu(at::kFloat));
  kernels::gelu_product_gradient(
      {shape, static_cast<int>(width), kernels::vectors_of(d_out), kernels::vectors_of(next),
       slopes.data_ptr(), 1, kernels::vectors_of(d_sum), parts.data_ptr<float>(), kernels::processors()},
      kernels::current_stream());
  EXPECT_TRUE(parts[tiles].isnan().all().item<bool>());
  const at::Tensor sum =
      at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble)).set_requires_grad(true);
  at::gelu(sum).backward(at::mm(d_out.to(at::kDouble), next.to(at::kDouble)));
  expect_near("d_sum", d_sum, sum.grad());
  expect_near("sums", parts.narrow(0, 0, tiles).sum(0), sum.grad().sum(0));
}

std::string name_of(const ::testing::TestParamInfo<Case>& tested) {
  const Case& tried = tested.param;
  return std::string(c10::toString(tried.type)) + "_" + std::to_string(tried.width) +
         (tried.rate > 0 ? "_dropout" : "_whole");
}

INSTANTIATE_TEST_SUITE_P(Shapes, MatrixRows, ::testing::ValuesIn(cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Shapes, GeluLayers, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace adtrain
