#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/FlatLayout.h"
#include "kernels/FusedBlockCase.h"
#include "kernels/activation/Activation.h"
#include "kernels/dropout/DroppedSum.h"
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

  /// The norm of a sublayer's input (sequences, length, width), whose last `residual_rows` get a gradient
  /// past the norm. `of_sum`: the input is a sum with a product, which is then what is dropped.
  void expect_normed_input(int64_t sequences, int64_t length, int64_t width, int64_t residual_rows,
                           double rate, bool layer_norm, bool of_sum) const {
    SCOPED_TRACE(fmt::format("width {}, dropout {}, {}{}", width, rate, layer_norm ? "LayerNorm" : "RMSNorm",
                             of_sum ? " of a sum" : ""));
    constexpr double kEpsilon = 1e-5;
    const std::vector<int64_t> shape = {sequences, length, width};
    const at::Tensor x = random(shape) + 1, product = random(shape), bias = random({width}),
                     weight = random({width}), norm_bias = random({width}), d_y = random(shape),
                     residual = random({sequences, residual_rows, width});
    const kernels::NormWeights norm = {weight, layer_norm ? norm_bias : at::Tensor()};
    const auto [kept, factors] = random_mask(shape, rate);
    std::vector<at::Tensor> exact;
    for (const at::Tensor& tensor : {x, product, bias, weight, norm_bias}) exact.push_back(leaf(tensor));
    const at::Tensor sum = of_sum ? exact[0] + (exact[1] + exact[2]) * factors : exact[0],
                     dropped = of_sum ? sum : sum * factors,
                     centred = layer_norm ? dropped - dropped.mean(-1, true) : dropped,
                     normalised = centred * at::rsqrt(centred.square().mean(-1, true) + kEpsilon);
    const at::Tensor y = normalised * exact[3] + (layer_norm ? exact[4] : at::zeros_like(exact[4]));
    const auto expected = torch::autograd::grad({y, sum.narrow(1, length - residual_rows, residual_rows)},
                                                {exact[0], exact[1], exact[2], exact[3], exact[4]},
                                                {d_y.to(at::kDouble), residual.to(at::kDouble)}, std::nullopt,
                                                /*create_graph=*/false, /*allow_unused=*/true);

    // The sums' parameters, in their order.
    std::vector<std::pair<const char*, at::Tensor>> sums;
    if (of_sum) sums.emplace_back("bias", expected[2]);
    sums.emplace_back("weight", expected[3]);
    if (layer_norm) sums.emplace_back("norm_bias", expected[4]);
    const FlatLayout layout(std::vector<int64_t>(sums.size(), width));
    const auto numbers = options_.dtype(at::kFloat);
    const at::Tensor before = at::randn({layout.total()}, numbers), next_before = at::randn({width}, numbers);
    const bool sums_residual = of_sum && (rate > 0) == layer_norm;  // of each kind, and not of each
    const auto run = [&] {
      kernels::NormedInput found = of_sum ? kernels::normed_sum_input(x, product, bias, norm, kEpsilon, kept)
                                          : kernels::normed_input(x, norm, kEpsilon, kept);
      const at::Tensor found_y = found.y, d_parameters = before.clone();
      if (layer_norm) found.y.reset();
      const at::Tensor d_next_bias = next_before.clone(), d_terms = d_y.unsqueeze(0);
      const auto [d_x, d_product, again] =
          of_sum ? kernels::normed_sum_input_backward(d_terms, found, norm, kEpsilon, residual, d_parameters,
                                                      sums_residual ? d_next_bias : at::Tensor())
                 : kernels::normed_input_backward(d_terms, found, norm, kEpsilon, residual, d_parameters);
      EXPECT_TRUE(again.equal(found_y)) << "not the same y again";
      return std::vector<at::Tensor>{
          found.x, found_y, d_x, d_product, d_parameters - before, d_next_bias - next_before};
    };
    const std::vector<at::Tensor> found = twice(run);
    expect_near("x", found[0], sum);
    expect_near("y", found[1], y);
    expect_near("d_x", found[2], expected[0]);
    if (of_sum) expect_near("d_product", found[3], expected[1]);
    for (size_t k = 0; k < sums.size(); ++k) {
      expect_near(sums[k].first, found[4].narrow(0, layout.offset(k), width), sums[k].second);
    }
    if (sums_residual) expect_near("next_bias", found[5], residual.to(at::kDouble).sum(1).sum(0));
  }
  /// Of each kind.
  void expect_normed_inputs(int64_t sequences, int64_t length, int64_t width, int64_t residual_rows,
                            double rate) const {
    for (const bool layer_norm : {false, true}) {
      for (const bool of_sum : {false, true})
        expect_normed_input(sequences, length, width, residual_rows, rate, layer_norm, of_sum);
    }
  }

  void expect_gelu(int64_t rows, int64_t width, kernels::GeluKind kind) const {
    // Beyond ±10, too, where its derivative is 0 or 1.
    const at::Tensor product = random({rows, width}) * 4, bias = random({width}), d_y = random({rows, width});
    const at::Tensor exact = leaf(product), exact_bias = leaf(bias),
                     y = at::gelu(exact + exact_bias, kind == kernels::GeluKind::kTanh ? "tanh" : "none");
    const auto expected = torch::autograd::grad({y}, {exact, exact_bias}, {d_y.to(at::kDouble)});
    const at::Tensor before = at::randn({width}, options_.dtype(at::kFloat));
    const std::vector<at::Tensor> found = twice([&] {
      const at::Tensor value = kernels::biased_gelu(product, bias, {}, kind), d_bias = before.clone();
      const at::Tensor d_product = kernels::biased_gelu_backward(d_y, product, bias, {}, d_bias, kind);
      return std::vector<at::Tensor>{value, d_product, d_bias - before};
    });
    expect_near("y", found[0], y);
    expect_near("d_product", found[1], expected[0]);
    expect_near("d_bias", found[2], expected[1]);
  }

  void expect_dropped_sum(int64_t rows, int64_t width) const {
    const std::vector<int64_t> shape = {rows, width};
    const at::Tensor x = random(shape), product = random(shape), bias = random({width}), d_y = random(shape);
    const auto [kept, factors] = random_mask(shape, 0.2);
    const at::Tensor exact = leaf(product), exact_bias = leaf(bias),
                     y = x.to(at::kDouble) + (exact + exact_bias) * factors;
    const auto expected = torch::autograd::grad({y}, {exact, exact_bias}, {d_y.to(at::kDouble)});
    const at::Tensor before = at::randn({width}, options_.dtype(at::kFloat));
    const std::vector<at::Tensor> found = twice([&] {
      const at::Tensor d_bias = before.clone();
      return std::vector<at::Tensor>{kernels::dropped_sum(x, product, bias, kept),
                                     kernels::dropped_sum_backward(d_y, kept, d_bias), d_bias - before};
    });
    expect_near("y", found[0], y);
    expect_near("d_product", found[1], expected[0]);
    expect_near("d_bias", found[2], expected[1]);
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
  /// Dropout as the kernels and as plain operators take it.
  struct Mask {
    kernels::KeptElements kept;
    at::Tensor factors;
  };
  Mask random_mask(at::IntArrayRef shape, double rate) const {
    if (rate == 0) return {{}, at::ones(shape, options_.dtype(at::kDouble))};
    const at::Tensor keeps = at::rand(shape, options_.dtype(at::kFloat)).ge(rate);
    const at::Tensor places = at::arange(8, options_.dtype(at::kByte));
    const kernels::KeptElements kept = {
        keeps.to(at::kByte).view({-1, 8}).bitwise_left_shift(places).sum(-1).to(at::kByte),
        static_cast<float>(1 / (1 - rate))};
    return {kept, keeps.to(at::kDouble) * static_cast<double>(kept.scale)};
  }
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
