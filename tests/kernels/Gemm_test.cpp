#include "kernels/gemm/Gemm.h"

#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "kernels/KernelSpeed.h"

namespace adtrain {
namespace {

struct Case {
  std::string name;
  int64_t rows, in, out;
  at::ScalarType type = at::kBFloat16;
  at::DeviceType device = at::kCUDA;
};

/// Large enough to be timed, small ones, odd ones, and without a GPU.
class Products : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().device == at::kCUDA && visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
  static at::Tensor random(const std::vector<int64_t>& sizes) {
    return at::randn(sizes, at::TensorOptions(GetParam().device)).to(GetParam().type);
  }
  static at::Tensor exact(const at::Tensor& x) { return x.to(at::kDouble); }
  /// Of a result that was rounded once, or, where it was added to a rounded one, twice.
  static void expect_close(const at::Tensor& found, const at::Tensor& expected, double roundings = 1) {
    ASSERT_EQ(found.sizes(), expected.sizes());
    const double rounding = GetParam().type == at::kHalf ? 1e-3 : 8e-3;
    EXPECT_LT((exact(found) - expected).norm().item<double>(),
              roundings * rounding * expected.norm().item<double>());
  }
};

TEST_P(Products, AreTheReference) {
  const auto& [name, rows, in, out, type, device] = GetParam();
  const at::Tensor x = random({2, rows / 2, in}), weight = random({out, in}), bias = random({out}),
                   d_y = random({2, rows / 2, out});
  expect_close(kernels::product(x, weight), at::linear(exact(x), exact(weight)));
  expect_close(kernels::product(x, weight, bias), at::linear(exact(x), exact(weight), exact(bias)));
  const at::Tensor sum = random({2, rows / 2, out}), sum_before = exact(sum);
  expect_close(kernels::sum_with_product(sum, x, weight), sum_before + at::linear(exact(x), exact(weight)));
  expect_close(kernels::sum_with_product(sum, x, weight, bias),
               sum_before + at::linear(exact(x), exact(weight), exact(bias)));
  EXPECT_TRUE(at::equal(exact(sum), sum_before));
  const at::Tensor in_place = sum.clone();
  kernels::add_product(in_place, x, weight, bias);
  expect_close(in_place, sum_before + at::linear(exact(x), exact(weight), exact(bias)), /*roundings=*/2);
  kernels::add_product(in_place, x, weight);
  expect_close(in_place, sum_before + at::linear(exact(x), exact(2 * weight), exact(bias)), /*roundings=*/2);
  const at::Tensor of_x = at::matmul(exact(d_y), exact(weight));
  expect_close(kernels::input_gradient(d_y, weight), of_x);
  const at::Tensor d_x = random({2, rows / 2, in}), before = exact(d_x);
  kernels::add_input_gradient(d_y, weight, d_x);
  expect_close(d_x, before + of_x);
}

TEST_P(Products, TakeOperandsOfAnyStrides) {
  const auto& [name, rows, in, out, type, device] = GetParam();
  const at::Tensor wide = random({rows, 2 * in}), weight = random({out, in});
  const at::Tensor x = wide.narrow(1, in, in);
  EXPECT_TRUE(at::equal(kernels::product(x, weight), kernels::product(x.contiguous(), weight)));
  const at::Tensor transposed = random({in, out}).t();
  expect_close(kernels::product(x, transposed), at::linear(exact(x), exact(transposed)));
}

/// Before algorithms are timed a product takes the first guess, whose result is that of the fastest one.
TEST_P(Products, AreTheSameWhenTheFastestIsKnown) {
  const auto& [name, rows, in, out, type, device] = GetParam();
  const at::Tensor x = random({rows - 1, in}), weight = random({out, in});  // a shape that is new
  const at::Tensor guessed = kernels::product(x, weight, {}, kernels::Autotuning::kNo);
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_TRUE(at::equal(kernels::product(x, weight), guessed));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Products,
                         ::testing::Values(Case{"large", 8192, 768, 3072}, Case{"tall", 122880, 128, 384},
                                           Case{"of_halves", 4096, 512, 512, at::kHalf},
                                           Case{"odd", 3002, 776, 520}, Case{"of_odd_width", 30002, 129, 131},
                                           Case{"small", 6, 64, 32},
                                           Case{"on_a_cpu", 6, 24, 40, at::kBFloat16, at::kCPU}),
                         [](const auto& tried) { return tried.param.name; });

/// The large model's products, ours beside libtorch's.
TEST(ProductsSpeed, DISABLED_OfTheLargeModel) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  constexpr int64_t kRows = 32 * 1024, kWidth = 768;
  const auto like = at::device(at::kCUDA).dtype(at::kBFloat16);
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{kWidth, 3 * kWidth},
                                {kWidth, kWidth},
                                {kWidth, 4 * kWidth},
                                {4 * kWidth, kWidth}}) {
    const at::Tensor x = at::randn({kRows, in}, like), weight = at::randn({out, in}, like),
                     bias = at::randn({out}, like), y = at::randn({kRows, out}, like);
    using testing::microseconds;
    std::cout << in << " -> " << out << ", us, ours and libtorch's: product "
              << microseconds([&] { (void)kernels::product(x, weight); }) << ", "
              << microseconds([&] { (void)at::linear(x, weight); }) << "; with bias "
              << microseconds([&] { (void)kernels::product(x, weight, bias); }) << ", "
              << microseconds([&] { (void)at::linear(x, weight, bias); }) << "; input gradient "
              << microseconds([&] { (void)kernels::input_gradient(y, weight); }) << ", "
              << microseconds([&] { (void)at::mm(y, weight); }) << "; added "
              << microseconds([&] { kernels::add_input_gradient(y, weight, x); }) << ", "
              << microseconds([&] { x.addmm_(y, weight); }) << std::endl;
  }
}

}  // namespace
}  // namespace adtrain
