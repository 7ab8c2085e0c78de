// Products with quantised weights by our own kernels, on a GPU or emulated, against float64.

#include "kernels/quantised/QuantisedProduct.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/FusedDevice.h"
#include "kernels/QuantisedCase.h"
#include "kernels/norm/NormEpsilon.h"
#include "kernels/quantised/ManyRowsPlan.h"
#include "kernels/quantised/OutlierProduct.h"
#include "kernels/quantised/WeightProduct.h"

namespace adtrain {
namespace {

using kernels::ProductPlan;
using kernels::ProductWay;
using kernels::WeightForm;
using ::testing::HasSubstr;
using testing::plainly_dequantised;
using testing::Quantised;
using testing::random_matrix;

constexpr ProductWay kTiles[] = {ProductWay::kTile128x64, ProductWay::kTile128x128, ProductWay::kTile128x256};
constexpr Quantised kKinds[] = {Quantised::kNf4, Quantised::kFp4, Quantised::kNestedNf4,
                                Quantised::kNestedFp4, Quantised::kInt8};

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

class OnFusedDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::fused_device()) GTEST_SKIP() << "no GPU here";
  }
  static at::Device device() { return testing::fused_device()->device; }
  static at::Tensor random(at::IntArrayRef sizes, at::ScalarType type) {
    return at::randn(sizes, at::device(device()).dtype(at::kFloat)).to(type);
  }
  /// Roundings of a 4-bit code's value, its scale, their product and the result.
  static double tolerance(at::ScalarType type) { return type == at::kHalf ? 8e-4 : 6e-3; }
  /// Of the product by the chosen plan and by these.
  static void expect_the_definition(const QuantisedMatrix& matrix, const at::Tensor& input, bool biased,
                                    const std::vector<ProductPlan>& plans = {}) {
    const at::Tensor bias = biased ? random({matrix.out_features}, input.scalar_type()) : at::Tensor();
    at::Tensor expected = at::matmul(input.to(at::kDouble), plainly_dequantised(matrix).t());
    if (biased) expected += bias.to(at::kDouble);
    const auto expect = [&](const at::Tensor& found, const at::Tensor& again) {
      ASSERT_EQ(found.sizes(), expected.sizes());
      ASSERT_EQ(found.scalar_type(), input.scalar_type());
      EXPECT_LT(error_of(found, expected), tolerance(input.scalar_type()));
      EXPECT_TRUE(at::equal(found, again)) << "not the same on repeat";
    };
    expect(quantised_linear(input, matrix, bias), quantised_linear(input, matrix, bias));
    for (const ProductPlan& plan : plans) {
      SCOPED_TRACE(fmt::format("way {}, {} splits", static_cast<int>(plan.way), plan.splits));
      expect(quantised_linear_by(plan, input, matrix, bias), quantised_linear_by(plan, input, matrix, bias));
    }
  }
};

using QuantisedCase = std::tuple<Quantised, at::ScalarType>;

class QuantisedProduct : public OnFusedDevice, public ::testing::WithParamInterface<QuantisedCase> {};

TEST_P(QuantisedProduct, IsTheDefinition) {
  const auto [kind, type] = GetParam();
  struct Shape {
    int64_t out, in;
    std::vector<int64_t> rows;
  };
  const std::vector<int64_t> all_rows = {1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 128, 256, 300, 512, 1000, 4096};
  const std::vector<Shape> shapes =
      device().is_cpu()
          ? std::vector<Shape>{{40, 192, {17, 63}}, {136, 704, {1, 130}}, {20, 2112, {1, 33}},
                               {24, 4160, {3, 9}},  {24, 4096, {2}},      {40, 1088, {5, 10}}}
          : std::vector<Shape>{{3072, 1024, all_rows},      {1024, 4096, all_rows}, {6144, 2048, all_rows},
                               {1000, 640, all_rows},       {33, 64, all_rows},     {2048, 8192, all_rows},
                               {4096, 1024, {1, 8, 11, 32}}};
  for (const auto& [out, in, rows_of_shape] : shapes) {
    const QuantisedMatrix matrix = random_matrix(kind, out, in, device());
    bool biased = false;
    for (const int64_t rows : rows_of_shape) {
      SCOPED_TRACE(fmt::format("{} x {}, {} rows{}", out, in, rows, biased ? ", with bias" : ""));
      // Splits of as many columns and of not quite as many.
      const int splits = static_cast<int>(std::min<int64_t>(in / kernels::kBlockColumns, 5));
      std::vector<ProductPlan> plans;
      for (const ProductWay way : kTiles) plans.push_back({way, plans.size() % 2 == 0 ? 1 : splits});
      if (rows > kernels::kMostFewRows) {
        plans = {{ProductWay::kTile128x64, splits},
                 {ProductWay::kTile128x128},
                 {ProductWay::kTile128x256, splits},
                 {ProductWay::kLibrary}};
      }
      expect_the_definition(matrix, random({rows, in}, type), biased, plans);
      biased = !biased;
    }
  }
}

/// Each weight by itself, as rows of the unit matrix return it.
TEST_P(QuantisedProduct, OfUnitVectorsIsTheWeights) {
  const auto [kind, type] = GetParam();
  constexpr int64_t kOut = 48, kIn = 192;
  const QuantisedMatrix matrix = random_matrix(kind, kOut, kIn, device());
  const at::Tensor weights = plainly_dequantised(matrix).t(), unit = at::eye(kIn, weights.options()).to(type);
  const auto expect = [&](ProductWay way, int64_t first, int64_t count) {
    SCOPED_TRACE(fmt::format("way {}, {} rows from {}", static_cast<int>(way), count, first));
    const at::Tensor found = quantised_linear_by({way}, unit.narrow(0, first, count), matrix, {});
    EXPECT_TRUE(at::allclose(found.to(at::kDouble), weights.narrow(0, first, count), 1.5e-2, 1e-5));
  };
  for (int64_t first = 0; first < kIn; first += kernels::kMostFewRows)
    expect(ProductWay::kFewRows, first, kernels::kMostFewRows);
  for (const ProductWay way : kTiles) expect(way, 0, kIn);
}

std::string case_name(const ::testing::TestParamInfo<QuantisedCase>& tested) {
  return testing::name_of(std::get<0>(tested.param)) + "_" + c10::toString(std::get<1>(tested.param));
}

INSTANTIATE_TEST_SUITE_P(Forms, QuantisedProduct,
                         ::testing::Combine(::testing::ValuesIn(kKinds),
                                            ::testing::Values(at::kBFloat16, at::kHalf)),
                         case_name);

using QuantisedLinear = OnFusedDevice;

/// The fastest of those that were measured on an H200.
TEST(ManyRowsPlan, IsTheFastestThatWasMeasured) {
  constexpr int kProcessors = 132;
  const auto plan = [](int64_t out, int64_t in, int64_t rows, WeightForm form = WeightForm::kFourBits) {
    kernels::QuantisedWeights weights = {};
    weights.form = form;
    weights.out_features = out;
    weights.in_features = in;
    const ProductPlan chosen = kernels::many_rows_plan(weights, rows, kProcessors);
    return std::pair(chosen.way, chosen.splits);
  };
  EXPECT_EQ(plan(8192, 2048, 1024), std::pair(ProductWay::kTile128x256, 1));
  EXPECT_EQ(plan(8192, 2048, 256), std::pair(ProductWay::kTile128x128, 1));
  EXPECT_EQ(plan(2048, 8192, 256), std::pair(ProductWay::kTile128x128, 3));
  EXPECT_EQ(plan(1024, 4096, 128), std::pair(ProductWay::kTile128x64, 6));
  EXPECT_EQ(plan(2048, 2048, 256), std::pair(ProductWay::kTile128x64, 2));
  EXPECT_EQ(plan(1024, 1024, 1024), std::pair(ProductWay::kTile128x64, 1));
  EXPECT_EQ(plan(4096, 1024, 1024), std::pair(ProductWay::kTile128x256, 1));
  EXPECT_EQ(plan(6144, 2048, 1024), std::pair(ProductWay::kLibrary, 1));
  // Dequantising them takes longer.
  EXPECT_EQ(plan(6144, 2048, 1024, WeightForm::kEightBits), std::pair(ProductWay::kTile128x128, 1));
  EXPECT_EQ(plan(1, 64, 33), std::pair(ProductWay::kTile128x64, 1));
}

/// GELU of the product with its bias, a sum, and both, by every way.
TEST_F(QuantisedLinear, WhatTheOptionsSayIsDoneToTheProduct) {
  for (const auto& [kind, in] : {std::pair(Quantised::kNestedNf4, 192), {Quantised::kInt8, 128}}) {
    for (const int64_t out : {40, 33}) {
      const QuantisedMatrix matrix = random_matrix(kind, out, in, device());
      const int64_t rows = out == 33 ? 70 : 9;  // two tiles, the last one with few rows
      const at::Tensor input = random({rows, in}, at::kHalf), bias = random({out}, at::kHalf),
                       sum = random({rows, out}, at::kHalf);
      const at::Tensor product = at::matmul(input.to(at::kDouble), plainly_dequantised(matrix).t());
      std::vector<ProductPlan> plans = {{ProductWay::kLibrary}};
      if (rows <= kernels::kMostFewRows) plans.push_back({ProductWay::kFewRows});
      for (const ProductWay way : kTiles) {
        plans.push_back({way});
        plans.push_back({way, 2});
      }
      for (const ProductPlan& plan : plans) {
        SCOPED_TRACE(
            fmt::format("{} x {}, way {}, {} splits", out, in, static_cast<int>(plan.way), plan.splits));
        const auto error = [&](const ProductOptions& options, const at::Tensor& of_bias,
                               const at::Tensor& expected) {
          return error_of(quantised_linear_by(plan, input, matrix, of_bias, options), expected);
        };
        const at::Tensor biased = product + bias.to(at::kDouble), added = sum.to(at::kDouble);
        EXPECT_LT(error({.gelu = true}, bias, at::gelu(biased)), 1.5e-3);
        EXPECT_LT(error({.gelu = true}, {}, at::gelu(product)), 1.5e-3);
        EXPECT_LT(error({.sum = sum}, bias, biased + added), 1.5e-3);
        EXPECT_LT(error({.gelu = true, .sum = sum}, bias, at::gelu(biased) + added), 1.5e-3);
      }
    }
  }
}

/// GELU of a product with a normed input, and a sum, of all ways in which the norm is done.
void expect_normed_product(const at::Tensor& input, const QuantisedMatrix& matrix,
                           const kernels::NormWeights& norm, double tolerance) {
  const int64_t in = input.size(1);
  const at::Tensor exact = input.to(at::kDouble), weight = norm.weight.to(at::kDouble);
  const at::Tensor normed = norm.bias.defined()
                                ? at::layer_norm(exact, {in}, weight, norm.bias.to(at::kDouble), kNormEpsilon)
                                : at::rms_norm(exact, {in}, weight, kNormEpsilon);
  const at::Tensor sum = at::randn({input.size(0), matrix.out_features}, input.options());
  const at::Tensor expected =
      at::gelu(at::matmul(normed, plainly_dequantised(matrix).t())) + sum.to(at::kDouble);
  const at::Tensor known = kernels::norm_products(input, matrix, norm);
  EXPECT_EQ(known.defined(), norm.bias.defined() && input.size(0) <= kernels::kMostFewRows);
  const ProductOptions options = {.norm = norm, .norm_products = known, .gelu = true, .sum = sum};
  const at::Tensor found = quantised_linear(input, matrix, {}, options);
  EXPECT_LT(error_of(found, expected), tolerance);
  EXPECT_TRUE(at::equal(quantised_linear(input, matrix, {}, options), found));
  const ProductOptions of_unknown = {.norm = norm, .gelu = true, .sum = sum};
  EXPECT_LT(error_of(quantised_linear(input, matrix, {}, of_unknown), expected), tolerance);
  EXPECT_LT(error_of(quantised_linear_by({ProductWay::kLibrary}, input, matrix, {}, options), expected),
            tolerance);
}

/// LayerNorm and RMSNorm before the product, in the kernel where rows are few and else in one before: every
/// width of rows that warps share differently, means far from 0, and an element far from all others.
TEST_F(QuantisedLinear, InputsAreNormedBefore) {
  // So few features that a thread block has 16 of them, and so many that it has 32.
  const int64_t few = device().is_cpu() ? 24 : 40, many = device().is_cpu() ? 40 : 3072;
  const std::vector<std::pair<Quantised, int64_t>> cases = {
      {Quantised::kNf4, few},   {Quantised::kNf4, many},       {Quantised::kInt8, few},
      {Quantised::kInt8, many}, {Quantised::kNestedNf4, many},
  };
  for (const auto& [in, rows] : std::vector<std::pair<int64_t, std::vector<int64_t>>>{
           {64, {1, 8, 32}}, {192, {3, 17, 31}}, {1024, {8, 9}}, {2048, {2, 12}}, {2112, {4}}, {320, {40}}}) {
    for (const auto& [kind, out] : cases) {
      const QuantisedMatrix matrix = random_matrix(kind, out, in, device());
      for (const int64_t count : rows) {
        for (const bool layer : {true, false}) {
          SCOPED_TRACE(fmt::format("{}, {} features, {} rows of {}, {}", testing::name_of(kind), out, count,
                                   in, layer ? "LayerNorm" : "RMSNorm"));
          const at::Tensor input = random({count, in}, at::kHalf).mul_(2).add_(layer ? 30 : 0);
          if (count > 1) input.select(0, 1).narrow(0, 0, 1).fill_(300);
          const at::Tensor weight = random({in}, at::kHalf);
          expect_normed_product(input, matrix, {weight, layer ? random({in}, at::kHalf) : at::Tensor()},
                                1.5e-3);
        }
      }
    }
  }
}

/// Weights times the norm's parameters are rounded to 16 bits, and those of 4 bits before that, too. Where
/// the mean is far from 0, what is taken off for it must have the same roundings.
TEST_F(QuantisedLinear, NormsTakeOffWhatProductsAddForTheMean) {
  for (const Quantised kind : {Quantised::kNf4, Quantised::kNestedNf4, Quantised::kInt8}) {
    SCOPED_TRACE(testing::name_of(kind));
    const QuantisedMatrix matrix = random_matrix(kind, 40, 2048, device());
    const at::Tensor weight = random({2048}, at::kBFloat16).mul_(0.1).add_(1);
    const at::Tensor input = random({8, 2048}, at::kBFloat16).add_(20);
    expect_normed_product(input, matrix, {weight, random({2048}, at::kBFloat16)}, 7e-3);
  }
}

/// Columns that divide by nothing, blocks that go over the ends of rows, fp32, inputs at odd addresses.
TEST_F(QuantisedLinear, OfOddShapesIsTheDefinition) {
  for (const Quantised kind : kKinds) {
    for (const auto& [out, in] : {std::pair<int64_t, int64_t>{7, 33}, {40, 72}, {19, 1}}) {
      SCOPED_TRACE(fmt::format("{} of {} x {}", testing::name_of(kind), out, in));
      const QuantisedMatrix matrix = random_matrix(kind, out, in, device());
      expect_the_definition(matrix, random({5, in}, at::kBFloat16), true);
      expect_the_definition(matrix, random({70, in}, at::kHalf), false);
      EXPECT_EQ(quantised_linear(random({0, in}, at::kHalf), matrix, {}).sizes(), at::IntArrayRef({0, out}));
    }
    for (const int64_t block_size : {32, 128, 4096}) {
      SCOPED_TRACE(fmt::format("{}, blocks of {}", testing::name_of(kind), block_size));
      const QuantisedMatrix matrix = random_matrix(kind, 24, 192, device(), block_size);
      expect_the_definition(matrix, random({3, 192}, at::kBFloat16), true);
      expect_the_definition(matrix, random({9, 192}, at::kFloat), true);
      expect_the_definition(matrix, random({3, 193}, at::kHalf).flatten().narrow(0, 1, 576).view({3, 192}),
                            false);
      expect_the_definition(matrix, random({192, 5}, at::kHalf).t(), false);
    }
  }
}

TEST_F(QuantisedLinear, OperandsThatDoNotFitAreErrors) {
  const auto fault = [&](const at::Tensor& input, const QuantisedMatrix& matrix, const at::Tensor& bias) {
    try {
      (void)quantised_linear(input, matrix, bias);
    } catch (const std::logic_error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const QuantisedMatrix matrix = random_matrix(Quantised::kNestedNf4, 24, 128, device());
  const at::Tensor input = random({2, 128}, at::kHalf);
  EXPECT_EQ(fault(input, matrix, {}), "none");
  EXPECT_THAT(fault(random({2, 64}, at::kHalf), matrix, {}), HasSubstr("24 x 128"));
  EXPECT_THAT(fault(random({2, 128}, at::kDouble), matrix, {}), HasSubstr("Double"));
  EXPECT_THAT(fault(input, matrix, random({24}, at::kFloat)), HasSubstr("bias of 24 elements of Float"));
  EXPECT_THROW((void)quantised_linear(input, matrix, {}, {.sum = random({2, 23}, at::kHalf)}),
               std::logic_error);
  QuantisedMatrix broken = matrix;
  broken.codes = matrix.codes.narrow(0, 0, 100);
  EXPECT_THAT(fault(input, broken, {}), HasSubstr("has codes of 100 elements of Byte"));
  broken = matrix;
  broken.block_size = 96;
  EXPECT_THAT(fault(input, broken, {}), HasSubstr("blocks of 96 elements"));
  broken = matrix;
  broken.nested_map = at::Tensor();
  EXPECT_THAT(fault(input, broken, {}), HasSubstr("has no nested map"));
  EXPECT_THROW((void)quantised_linear_by({ProductWay::kFewRows},
                                         random({kernels::kMostFewRows + 1, 128}, at::kHalf), matrix, {}),
               std::logic_error);
}

/// By kernels in 16 bits, in each way that fits, with no outlier, one and so many that all columns are
/// multiplied apart. 4096 rows are multiplied at once.
TEST_F(QuantisedLinear, ProductWithOutliersIsThatOfTheOperators) {
  using kernels::WholeProduct;
  struct Shape {
    int64_t rows, out, in;
    std::vector<WholeProduct> ways;
  };
  const WholeProduct few = WholeProduct::kFewRows, tiles = WholeProduct::kTiles,
                     library = WholeProduct::kLibrary;
  std::vector<Shape> shapes = {{3, 64, 96, {few, tiles, library}},
                               {40, 136, 64, {tiles, library}},
                               {11, 37, 48, {few, library}},
                               {16, 24, 2128, {few, tiles}},  // more than warps load at once
                               {33, 24, 2040, {library}},
                               {1, 8, 1, {library}},
                               {70, 130, 328, {library}},
                               {200, 264, 144, {tiles}},
                               {129, 8, 1056, {tiles}}};
  if (device().is_cuda()) {
    shapes.push_back({5003, 128, 256, {tiles, library}});
    shapes.push_back({4100, 1000, 640, {tiles, library}});
    shapes.push_back({8, 2048, 8192, {few, library}});
    shapes.push_back({2, 2048, 8192, {few, library}});
  }
  for (const auto& [rows, out, in, ways] : shapes) {
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const double outlier : {0.0, 50.0, 0.5}) {
        const double threshold = outlier == 0.5 ? 0.5 : 6;
        const bool biased = type != at::kHalf;
        SCOPED_TRACE(fmt::format("{} rows, {} x {} in {}, outliers of {}", rows, out, in, c10::toString(type),
                                 outlier));
        const QuantisedMatrix matrix = random_matrix(Quantised::kInt8, out, in, device());
        at::Tensor x = random({rows, in}, type).clamp(-5, 5);
        x.select(0, rows - 1).select(0, in / 2).fill_(outlier);
        const at::Tensor bias = biased ? random({out}, type) : at::Tensor();
        const ProductOptions options = {.gelu = biased,
                                        .sum = biased ? at::Tensor() : random({rows, out}, type)};
        QuantisedMatrix on_cpu = matrix;
        on_cpu.codes = matrix.codes.cpu(), on_cpu.absmax = matrix.absmax.cpu();
        const auto cpu = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.cpu() : tensor; };
        const at::Tensor expected =
            kernels::outlier_product_by_operators(x.cpu(), on_cpu, cpu(bias), threshold,
                                                  {.gelu = options.gelu, .sum = cpu(options.sum)})
                .to(at::kDouble);
        const auto expect = [&](const at::Tensor& found, const at::Tensor& again) {
          EXPECT_EQ(found.scalar_type(), type);
          EXPECT_TRUE(at::equal(found, again)) << "not the same on repeat";
          // Both are rounded to 16 bits. Of few elements one decides, which may be a step of the type off.
          const double step = type == at::kHalf ? 0x1p-10 : 0x1p-7;
          const double rounding = expected.numel() > 8 ? tolerance(type) : std::max(step, tolerance(type));
          EXPECT_LE(error_of(found.cpu(), expected), type == at::kFloat ? 1e-6 : rounding);
        };
        const auto chosen = [&] { return kernels::outlier_product(x, matrix, bias, threshold, options); };
        expect(chosen(), chosen());
        if (type == at::kFloat) continue;
        for (const WholeProduct way : ways) {
          SCOPED_TRACE(fmt::format("way {}", static_cast<int>(way)));
          const auto by = [&] {
            return kernels::outlier_product_by(way, x, matrix, bias, threshold, options);
          };
          expect(by(), by());
        }
      }
    }
  }
  const QuantisedMatrix odd = random_matrix(Quantised::kInt8, 8, 24, device());
  EXPECT_THROW((void)kernels::outlier_product_by(few, random({3, 24}, at::kHalf), odd, {}, 6.0),
               std::logic_error);
}

/// A row that cannot be rounded is no number in the result, and leaves the others as they are.
TEST_F(QuantisedLinear, ProductWithOutliersKeepsWhatIsNoNumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const QuantisedMatrix matrix = random_matrix(Quantised::kInt8, 40, 64, device());
  const at::Tensor x = random({5, 64}, at::kBFloat16);
  at::Tensor spoilt = x.clone();
  spoilt.select(0, 2).select(0, 7).fill_(kNan);
  for (const auto way :
       {kernels::WholeProduct::kFewRows, kernels::WholeProduct::kTiles, kernels::WholeProduct::kLibrary}) {
    const at::Tensor whole = kernels::outlier_product_by(way, x, matrix, {}, 6.0),
                     found = kernels::outlier_product_by(way, spoilt, matrix, {}, 6.0);
    EXPECT_TRUE(found.select(0, 2).isnan().all().item<bool>());
    EXPECT_TRUE(at::equal(found.narrow(0, 0, 2), whole.narrow(0, 0, 2)));
    EXPECT_TRUE(at::equal(found.narrow(0, 3, 2), whole.narrow(0, 3, 2)));
  }
}

TEST_F(QuantisedLinear, DequantisedWeightsAreTheDefinitionToTheBit) {
  for (const Quantised kind : kKinds) {
    for (const auto& [out, in] : {std::pair<int64_t, int64_t>{7, 33}, {64, 256}, {37, 52}}) {
      const QuantisedMatrix matrix = random_matrix(kind, out, in, device());
      for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
        SCOPED_TRACE(
            fmt::format("{} of {} x {} in {}", testing::name_of(kind), out, in, c10::toString(type)));
        const at::Tensor found = dequantised_on_gpu(matrix, type);
        EXPECT_TRUE(at::equal(found, plainly_dequantised(matrix, at::kFloat).to(type)));
        EXPECT_LT(error_of(dequantised_on_gpu(matrix, at::kFloat), plainly_dequantised(matrix)), 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace adtrain
