// The encoder of grids of symbols by kernels of our own, on a GPU or emulated, against float64.

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/FusedDevice.h"
#include "kernels/GradientSink.h"
#include "kernels/encoder/FusedSymbolicEncoder.h"

namespace adtrain {
namespace {

using kernels::SymbolGrid;
using testing::GradientSink;

constexpr int64_t kChannels = 32, kDigitFeatures = 64, kConvolutions = 3;

struct Case {
  std::string name;
  SymbolGrid grid;
  int64_t rows, steps;
  at::ScalarType type = at::kBFloat16, cells = at::kByte;
};

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor right = expected.detach().to(at::kDouble);
  return ((found.detach().to(at::kDouble) - right).norm() / right.norm().clamp_min(1e-12)).item<double>();
}

/// float64 operators that round where the kernels do. Gradients pass through roundings unchanged.
class Reference {
 public:
  Reference(const Case& tried, const std::vector<at::Tensor>& parameters) : tried_(tried) {
    for (const at::Tensor& parameter : parameters)
      exact.push_back(parameter.detach().to(at::kDouble).set_requires_grad(true));
  }

  /// `digits`: of each cell (rows, steps, height, width, digits).
  at::Tensor operator()(const at::Tensor& digits) const {
    const size_t count = tried_.grid.values.size();
    std::vector<at::Tensor> embedded;
    for (size_t digit = 0; digit < count; ++digit)
      embedded.push_back(at::embedding(exact[digit], digits.select(-1, static_cast<int64_t>(digit))));
    at::Tensor x = convolved(at::cat(embedded, -1), exact[count], exact[count + 1], /*of_table=*/true);
    for (size_t layer = 1; layer < kConvolutions; ++layer)
      x = convolved(x, exact[count + 2 * layer], exact[count + 2 * layer + 1], false);
    const at::Tensor features = x.permute({0, 1, 4, 2, 3}).flatten(2);
    if (!tried_.grid.has_fused_linear()) return features;
    return at::linear(features, exact[count + 2 * kConvolutions], exact[count + 2 * kConvolutions + 1]);
  }

  std::vector<at::Tensor> exact;

 private:
  at::Tensor rounded(const at::Tensor& x) const {
    return x + (x.detach().to(tried_.type).to(at::kDouble) - x.detach());
  }
  at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       bool of_table) const {
    at::Tensor sum = bias;
    for (int64_t corner = 0; corner < 4; ++corner) {
      const at::Tensor cells = x.narrow(2, corner / 2, x.size(2) - 1).narrow(3, corner % 2, x.size(3) - 1);
      const at::Tensor product = at::linear(cells, weight.select(3, corner % 2).select(2, corner / 2));
      sum = sum + (of_table ? rounded(product) : product);
    }
    return rounded(at::relu(sum));
  }

  const Case& tried_;
};

class SymbolicEncoder : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!testing::fused_device()) GTEST_SKIP() << "no GPU here";
    const Case& tried = GetParam();
    // Of few binary digits: all sums up to the last convolution's are exact, and no rounding decides whether
    // an activation is positive.
    const auto draw = [&](at::IntArrayRef sizes, double deviation, double step) {
      const at::Tensor drawn =
          at::randn(sizes, at::device(device())).mul_(deviation / step).round_().mul_(step);
      parameters_.push_back(drawn.to(tried.type).set_requires_grad(true));
    };
    constexpr double kQuarter = 0.25, kSixteenth = 0.0625;
    int64_t in = 0;
    for (const int64_t values : tried.grid.values) {
      draw({values + (in == 0 ? 1 : 0), kDigitFeatures}, 1, kQuarter);
      in += kDigitFeatures;
    }
    for (int64_t layer = 0; layer < kConvolutions; ++layer) {
      draw({kChannels, in, 2, 2}, std::sqrt(2.0 / (4.0 * static_cast<double>(in))),
           layer == 0 ? kSixteenth / 2 : kSixteenth);
      draw({kChannels}, 0.1, kSixteenth);
      in = kChannels;
    }
    const int64_t places = (tried.grid.height - kConvolutions) * (tried.grid.width - kConvolutions);
    if (tried.grid.has_fused_linear()) {
      draw({tried.grid.features, kChannels * places}, 0.1, kSixteenth / 4);
      draw({tried.grid.features}, 0.1, kSixteenth);
    }

    std::vector<at::Tensor> digits;
    for (const int64_t values : tried.grid.values) {
      digits.push_back(at::randint(values, {tried.rows, tried.steps, tried.grid.height, tried.grid.width},
                                   at::device(device()).dtype(at::kLong)));
    }
    digits_ = at::stack(digits, -1);
    at::Tensor number = digits.front();
    for (size_t digit = 1; digit < digits.size(); ++digit)
      number = number * tried.grid.values[digit] + digits[digit];
    cells_ = (tried.grid.packed ? number : digits_).to(tried.cells);
  }

  static at::Device device() { return testing::fused_device()->device; }
  at::Tensor found(MainGradients* main_gradients = nullptr) const {
    return kernels::fused_symbolic_encoder(GetParam().grid, cells_, parameters_, main_gradients);
  }

  at::Tensor digits_, cells_;
  std::vector<at::Tensor> parameters_;
};

TEST_P(SymbolicEncoder, IsThatOfThePlainOperators) {
  const double tolerance = GetParam().type == at::kHalf ? 2e-3 : 1e-2;
  const Reference reference(GetParam(), parameters_);
  const at::Tensor right = reference(digits_), x = found();
  ASSERT_EQ(x.sizes(), right.sizes());
  EXPECT_EQ(x.scalar_type(), GetParam().type);
  EXPECT_LT(error_of(x, right), tolerance / 2);

  const at::Tensor dx = at::randn_like(x.detach());
  const auto of_right =
      torch::autograd::grad({right}, {reference.exact.begin(), reference.exact.end()}, {dx.to(at::kDouble)});
  GradientSink main_gradients(parameters_), again(parameters_);
  for (GradientSink* each : {&main_gradients, &again}) found(each).backward(dx);
  EXPECT_EQ(main_gradients.told, parameters_.size());
  EXPECT_TRUE(at::equal(main_gradients.flat, again.flat)) << "not the same on repeat";
  const auto of_found = torch::autograd::grad({x}, {parameters_.begin(), parameters_.end()}, {dx});
  for (size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
    EXPECT_LT(error_of(main_gradients.gradient(parameter), of_right[parameter]), tolerance) << parameter;
    EXPECT_LT(error_of(of_found[parameter], main_gradients.gradient(parameter)), 4e-3) << parameter;
    EXPECT_FALSE(parameters_[parameter].grad().defined());
  }
}

TEST_P(SymbolicEncoder, TakesRowsOfAnyStrides) {
  const at::Tensor x = found();
  cells_ = cells_.transpose(0, 1).contiguous().transpose(0, 1);
  EXPECT_TRUE(at::equal(x, found()));
}

/// Of two digits, as in XLand's views.
SymbolGrid view(int64_t height, int64_t width, bool packed = true) {
  return {height, width, {13, 12}, packed, 64};
}
SymbolGrid grid(int64_t height, int64_t width, std::vector<int64_t> values, int64_t features = 64,
                bool packed = false) {
  return {height, width, std::move(values), packed, features};
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SymbolicEncoder,
    ::testing::Values(Case{"of_xland", view(5, 5), 3, 51},
                      Case{"of_xland_in_fp16", view(5, 5), 3, 45, at::kHalf},
                      Case{"of_digits", view(5, 5, false), 1, 19, at::kBFloat16, at::kLong},
                      Case{"of_the_smallest_grid", view(4, 4), 1, 1, at::kHalf},
                      Case{"of_a_wide_grid", view(4, 7), 2, 35},
                      Case{"of_one_digit", grid(5, 4, {32}), 2, 21, at::kBFloat16, at::kInt},
                      Case{"of_three_digits", grid(5, 5, {11, 6, 3}), 2, 20, at::kBFloat16, at::kByte},
                      Case{"of_the_most_numbers", grid(5, 5, {16, 16}, 64, true), 3, 40, at::kHalf},
                      Case{"of_other_features", grid(5, 5, {3, 5}, 40), 2, 17},
                      Case{"of_a_larger_grid", grid(7, 7, {11, 6, 3}), 1, 37},
                      Case{"of_the_largest_grid", view(9, 9), 1, 35, at::kHalf}),
    [](const auto& tried) { return tried.param.name; });

}  // namespace
}  // namespace adtrain
