#pragma once

#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/FlatLayout.h"
#include "kernels/FusedBlockCase.h"
#include "kernels/activation/Activation.h"
#include "kernels/gemm/Columns.h"
#include "kernels/norm/Norm.h"
#include "kernels/rope/Rope.h"

/// What goes on between the products of a pre-norm block by sublayers, twice, against float64: on a GPU, or
/// emulated on the CPU.
namespace adtrain::testing {

class PreNormRowChecks {
 public:
  PreNormRowChecks(at::Device device, at::ScalarType type)
      : options_(at::device(device).dtype(type)), tolerance_(type == at::kHalf ? 1e-3 : 6e-3) {}

  /// Of (sequences, length, width), whose last `residual_rows` get a gradient past the norm.
  void expect_normed_sum(int64_t sequences, int64_t length, int64_t width, int64_t residual_rows,
                         double rate) const {
    constexpr double kEpsilon = 1e-5;
    const std::vector<int64_t> shape = {sequences, length, width};
    const at::Tensor x = random(shape), product = random(shape), bias = random({width}),
                     weight = random({width}), d_y = random(shape),
                     residual = random({sequences, residual_rows, width});
    kernels::KeptElements kept;
    at::Tensor factors = at::ones(shape, options_.dtype(at::kDouble));
    if (rate > 0) {
      const at::Tensor keeps = at::rand(shape, options_.dtype(at::kFloat)).ge(rate);
      const at::Tensor places = at::arange(8, options_.dtype(at::kByte));
      kept = {keeps.to(at::kByte).view({-1, 8}).bitwise_left_shift(places).sum(-1).to(at::kByte),
              static_cast<float>(1 / (1 - rate))};
      factors = keeps.to(at::kDouble) * static_cast<double>(kept.scale);
    }
    const at::Tensor exact_x = leaf(x), exact_bias = leaf(bias), exact_weight = leaf(weight);
    const at::Tensor sum = exact_x + product.to(at::kDouble) + exact_bias, dropped = sum * factors;
    const at::Tensor y = dropped * at::rsqrt(dropped.square().mean(-1, true) + kEpsilon) * exact_weight;
    const auto expected = torch::autograd::grad({y, sum.narrow(1, length - residual_rows, residual_rows)},
                                                {exact_x, exact_bias, exact_weight},
                                                {d_y.to(at::kDouble), residual.to(at::kDouble)});

    const FlatLayout layout({width, width});
    const at::Tensor before = at::randn({layout.total()}, options_.dtype(at::kFloat));
    const auto run = [&] {
      const kernels::RmsNormedSum found = kernels::rms_normed_sum(x, product, bias, weight, kEpsilon, kept);
      const at::Tensor d_parameters = before.clone();
      const at::Tensor d_x = kernels::rms_normed_sum_backward(d_y.unsqueeze(0), found.sum, weight, kEpsilon,
                                                              kept, residual, d_parameters);
      return std::vector<at::Tensor>{found.sum, found.y, d_x, d_parameters - before};
    };
    const std::vector<at::Tensor> found = twice(run);
    expect_near("sum", found[0], sum);
    expect_near("y", found[1], y);
    expect_near("d_x", found[2], expected[0]);
    for (size_t parameter = 0; parameter < 2; ++parameter) {
      expect_near(parameter == 0 ? "bias" : "weight", found[3].narrow(0, layout.offset(parameter), width),
                  expected[1 + parameter]);
    }
  }

  void expect_gate(int64_t rows, int64_t width) const {
    const at::Tensor factors = random({rows, 2, width}) * 3, d_y = random({rows, width});
    const at::Tensor exact = leaf(factors);
    const at::Tensor y = at::silu(exact.select(1, 0)) * exact.select(1, 1);
    const auto expected = torch::autograd::grad({y}, {exact}, {d_y.to(at::kDouble)});
    const std::vector<at::Tensor> found = twice([&] {
      return std::vector<at::Tensor>{kernels::gated(factors), kernels::gated_backward(d_y, factors)};
    });
    expect_near("y", found[0], y);
    expect_near("d_factors", found[1], expected[0]);
  }

  /// `queries` of the `length` tokens stand after the others; the last `rows` ask.
  void expect_rope(int64_t sequences, int64_t length, int64_t queries, int64_t rows, int64_t heads,
                   int64_t head_size) const {
    const TokenStreams streams = {.context = length - queries, .queries = queries};
    const Rotary rotary = Rotary::of(at::arange(streams.context, options_.dtype(at::kLong)), head_size);
    const at::Tensor cosines = rotary.with_queries(streams).cosines.view({length, 1, 1, -1}),
                     sines = rotary.with_queries(streams).sines.view({length, 1, 1, -1});
    const at::Tensor projected = random({sequences, length, heads, 3, head_size}), exact = leaf(projected);
    const at::Tensor asked = exact.narrow(3, 0, 2);
    const at::Tensor a = asked.narrow(-1, 0, head_size / 2),
                     b = asked.narrow(-1, head_size / 2, head_size / 2);
    const at::Tensor rotated =
        at::cat({at::cat({a * cosines - b * sines, b * cosines + a * sines}, -1), exact.narrow(3, 2, 1)}, 3);
    const at::Tensor d_queries = random({sequences, rows, heads, head_size}),
                     d_keys = random({sequences, length, heads, head_size}),
                     d_values = random(d_keys.sizes());
    const auto expected = torch::autograd::grad(
        {rotated.select(3, 0).narrow(1, length - rows, rows), rotated.select(3, 1), rotated.select(3, 2)},
        {exact}, {d_queries.to(at::kDouble), d_keys.to(at::kDouble), d_values.to(at::kDouble)});
    const std::vector<at::Tensor> found = twice([&] {
      const at::Tensor in_place = projected.clone();
      kernels::apply_rope(in_place, rotary);
      return std::vector<at::Tensor>{in_place,
                                     kernels::apply_rope_backward(d_queries, d_keys, d_values, rotary)};
    });
    expect_near("rotated", found[0], rotated);
    expect_near("d_projected", found[1], expected[0]);
    EXPECT_TRUE(found[0].select(3, 2).equal(projected.select(3, 2))) << "values do not turn";
  }

  void expect_added_columns(int64_t rows, int64_t width) const {
    const at::Tensor matrix = random({rows, width}), before = at::randn({width}, options_.dtype(at::kFloat));
    const std::vector<at::Tensor> found = twice([&] {
      const at::Tensor sums = before.clone();
      kernels::add_columns(matrix, sums);
      return std::vector<at::Tensor>{sums};
    });
    EXPECT_LT(error_of(found[0], matrix.to(at::kDouble).sum(0) + before), 1e-5);
  }

 private:
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes, options_); }
  static at::Tensor leaf(const at::Tensor& x) { return x.to(at::kDouble).set_requires_grad(true); }
  static std::vector<at::Tensor> twice(const std::function<std::vector<at::Tensor>()>& run) {
    const std::vector<at::Tensor> first = run(), second = run();
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(first[i].equal(second[i])) << "result " << i << " is not the same on repeat";
    }
    return first;
  }
  void expect_near(const char* what, const at::Tensor& found, const at::Tensor& expected) const {
    EXPECT_LT(error_of(found, expected), tolerance_) << what;
  }

  at::TensorOptions options_;
  double tolerance_;
};

}  // namespace adtrain::testing
