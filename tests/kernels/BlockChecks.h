#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "kernels/FusedBlockCase.h"
#include "kernels/KeptElements.h"
#include "kernels/PlannedAttention.h"
#include "kernels/PreNormChecks.h"
#include "kernels/Recomputation.h"
#include "kernels/attention/ProjectedAttention.h"

/// A whole block's operation beside float64, with the bits that it draws: on a GPU, or emulated on the CPU.
namespace adtrain::testing {

struct BlockCase {
  kernels::BlockShape shape;
  double attention_rate, hidden_rate;
  int64_t inner;           ///< the MLP's width
  bool by_halves = false;  ///< perhaps with the attention by libtorch, whose dropout nobody knows
  at::ScalarType type = at::kBFloat16;
};

inline std::string name_of(const BlockCase& tried) {
  return name_of(FusedBlockCase{tried.shape, tried.hidden_rate}) + "_" + c10::toString(tried.type);
}

class BlockCheck {
 public:
  virtual ~BlockCheck() = default;

  void run() {
    const kernels::BlockPass pass = new_pass();
    const at::Tensor y = found(x_, pass);
    EXPECT_EQ(is_one_function(y), !case_.by_halves || own_attention() || last_token_reads_all());
    take_attention_dropout_mask(pass);
    std::vector<at::Tensor> exact;
    for (const at::Tensor& input : inputs()) exact.push_back(input.detach().to(at::kDouble).requires_grad_());
    const at::Tensor expected = reference(exact, pass);
    EXPECT_LT(error_of(y, expected), tolerance() / 2.5);

    const at::Tensor dy = at::randn(y.sizes(), y.options().requires_grad(false));
    const auto of_found = torch::autograd::grad({y}, inputs(), {dy});
    const auto right = torch::autograd::grad({expected}, exact, {dy.to(at::kDouble)});
    for (size_t k = 0; k < exact.size(); ++k) {
      EXPECT_LT(error_of(of_found[k], right[k]), tolerance()) << (k == 0 ? "x" : "parameter ") << k;
    }

    const at::NoGradGuard no_gradients;  // a pass without may compute in place
    kernels::BlockPass of_values = pass;
    of_values.trains = false;
    const at::Tensor before = x_.clone();
    EXPECT_LT(error_of(found(x_, of_values), expected), tolerance() / 2.5);
    EXPECT_TRUE(at::equal(x_, before));
  }

  /// Between the output of a block by sublayers and its input there is one node of autograd.
  void expect_one_function() const {
    ASSERT_TRUE(case_.by_halves && own_attention());
    EXPECT_TRUE(is_one_function(found(x_, new_pass())));
  }

  /// What the backward pass computes again changes no bit.
  void expect_the_same_recomputed() const {
    const kernels::BlockPass pass = new_pass();
    kernels::BlockPass of_mlp = pass;
    of_mlp.recomputes_mlp = true;
    const at::Tensor y = found(x_, pass), y_of_mlp = found(x_, of_mlp),
                     y_of_block = kernels::recomputed(x_, parameters_, kernels::RandomNumbers::kSeeds,
                                                      [&](const at::Tensor&x, kernels::PartRun run) {
                                                        return found(x, pass.running(run));
                                                      });
    const at::Tensor dy = at::randn(y.sizes(), y.options().requires_grad(false));
    const auto expected = torch::autograd::grad({y}, inputs(), {dy});
    for (const at::Tensor& again : {y_of_mlp, y_of_block}) {
      EXPECT_TRUE(at::equal(again, y));
      const auto gradients = torch::autograd::grad({again}, inputs(), {dy});
      for (size_t k = 0; k < expected.size(); ++k)
        EXPECT_TRUE(at::equal(gradients[k], expected[k])) << (k == 0 ? "x" : "parameter ") << k;
    }
  }

  /// With dropout of its own.
  at::Tensor output() const { return found(x_, new_pass()).detach(); }

 protected:
  static constexpr int64_t kNumber = 1;

  BlockCheck(const BlockCase& tried, at::Device device)
      : case_(tried), device_(device), data_({tried.shape, tried.attention_rate}, device) {
    x_ = random({tried.shape.sequences, tried.shape.length(), tried.shape.width}, 1);
    streams_ = TokenStreams{.context = tried.shape.tokens, .queries = tried.shape.queries}.with_masks(x_);
  }

  virtual at::Tensor found(const at::Tensor& x, const kernels::BlockPass& pass) const = 0;
  /// `exact`: x and the parameters.
  virtual at::Tensor reference(const std::vector<at::Tensor>& exact,
                               const kernels::BlockPass& pass) const = 0;
  virtual int64_t attention_draw() const = 0;
  /// Whether attention is part of what is before it, as no keys and values are needed.
  virtual bool last_token_reads_all() const { return false; }
  virtual bool has_rope() const = 0;

  const kernels::BlockShape& shape() const { return case_.shape; }
  const TokenStreams& streams() const { return streams_; }
  /// Of a matrix of weights.
  double deviation() const { return 1 / std::sqrt(static_cast<double>(shape().width)); }
  at::Tensor random(at::IntArrayRef sizes, double deviation) const {
    return at::randn(sizes, device_).mul_(deviation).to(case_.type).set_requires_grad(true);
  }
  at::Tensor last_rows(const at::Tensor& x) const {
    return x.narrow(1, shape().length() - shape().rows, shape().rows);
  }
  static at::Tensor dropped(const at::Tensor& x, const kernels::KeptElements& kept) {
    if (!kept.bits.defined()) return x;
    const at::Tensor places = at::arange(8, kept.bits.options());
    const at::Tensor bits = kept.bits.unsqueeze(-1).bitwise_right_shift(places).bitwise_and(1);
    return x * bits.view(x.sizes()).to(at::kDouble) * static_cast<double>(kept.scale);
  }

  BlockCase case_;
  at::Device device_;
  TokenStreams streams_;
  PreNormAttentionData data_;  ///< what the attention's reference reads
  at::Tensor x_;
  std::vector<at::Tensor> parameters_;

 private:
  kernels::BlockPass new_pass() const {
    return {x_, shape().heads, case_.attention_rate, case_.hidden_rate, own_attention(), nullptr};
  }
  double tolerance() const { return case_.type == at::kHalf ? 5e-3 : 2.5e-2; }
  std::vector<at::Tensor> inputs() const {
    std::vector<at::Tensor> all = {x_};
    all.insert(all.end(), parameters_.begin(), parameters_.end());
    return all;
  }
  bool own_attention() const {
    return testing::own_attention_fits(shape(), has_rope(), streams().padded(), device_, case_.type);
  }
  bool is_one_function(const at::Tensor& y) const {
    const torch::autograd::edge_list& edges = y.grad_fn()->next_edges();
    const std::vector<at::Tensor> all = inputs();
    if (edges.size() != all.size()) return false;
    for (size_t k = 0; k < all.size(); ++k) {
      if (edges[k].function != torch::autograd::impl::gradient_edge(all[k]).function) return false;
    }
    return true;
  }
  void take_attention_dropout_mask(const kernels::BlockPass& pass) {
    if (case_.attention_rate == 0) return;
    at::Tensor& bits = data_.block.attention_dropout_mask;
    bits = pass.attention_dropout_mask(shape().attention_rows(), attention_draw()).view(bits.sizes());
    data_.block.scale = pass.keep_attention.scale();
  }
};

}  // namespace adtrain::testing
