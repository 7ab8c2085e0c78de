#pragma once

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "model/PreNormChecks.h"
#include "model/kernels/fused/FusedPreNorm.h"
#include "model/kernels/rows/PreNormHalves.h"

/// A whole pre-norm block's operation beside float64, with the bits that it draws: on a GPU, or emulated on
/// the CPU.
namespace adtrain::testing {

struct PreNormBlockCase {
  kernels::BlockShape shape;
  double attention_rate, hidden_rate;
  int64_t inner;           ///< the MLP's width
  bool by_halves = false;  ///< perhaps with the attention by libtorch, whose dropout nobody knows
  at::ScalarType type = at::kBFloat16;
};

class PreNormBlockCheck {
 public:
  PreNormBlockCheck(const PreNormBlockCase& tried, at::Device device)
      : case_(tried), device_(device), data_({tried.shape, tried.attention_rate}, device) {
    const kernels::BlockShape& shape = tried.shape;
    const int64_t width = shape.width;
    const double deviation = 1 / std::sqrt(static_cast<double>(width));
    x_ = random({shape.sequences, shape.length(), width}, 1);
    parameters_ = {random({width}, 1),
                   random({3 * width, width}, deviation),
                   random({3 * width}, 0.2),
                   random({width, width}, deviation),
                   random({width}, 0.2),
                   random({width}, 1),
                   random({tried.inner, width}, deviation),
                   random({tried.inner, width}, deviation),
                   random({width, tried.inner}, 0.8 * deviation)};
  }

  void run() {
    const kernels::BlockShape& shape = case_.shape;
    const kernels::BlockPass pass(x_, shape.heads, case_.attention_rate, case_.hidden_rate, nullptr);
    const at::Tensor y = found(pass);
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
  }

 private:
  static constexpr int64_t kNumber = 1;
  /// In a block: 0 for the first norm's input, 1 for the second one's, 2 for the attention.
  static constexpr int64_t kDraws = 3;

  double tolerance() const { return case_.type == at::kHalf ? 5e-3 : 2.5e-2; }
  at::Tensor random(at::IntArrayRef sizes, double deviation) const {
    return at::randn(sizes, device_).mul_(deviation).to(case_.type).set_requires_grad(true);
  }
  std::vector<at::Tensor> inputs() const {
    std::vector<at::Tensor> all = {x_};
    all.insert(all.end(), parameters_.begin(), parameters_.end());
    return all;
  }

  at::Tensor found(const kernels::BlockPass& pass) const {
    const kernels::BlockShape& shape = case_.shape;
    const Rotary rotary = {data_.cosines, data_.sines};
    if (case_.by_halves) {
      const Streams streams = Streams::two(shape.tokens, shape.queries, x_);
      return kernels::pre_norm_block_by_halves(x_, parameters_, streams, rotary, shape.rows, kNumber, pass);
    }
    return kernels::fused_pre_norm_block(x_, parameters_, rotary, shape.queries, shape.rows, kNumber, pass);
  }

  /// `exact`: x and the parameters.
  at::Tensor reference(const std::vector<at::Tensor>& exact, const kernels::BlockPass& pass) {
    const kernels::BlockShape& shape = case_.shape;
    const auto* p = &exact[1];
    const at::Tensor normed1 = normed(kept(exact[0], pass, 0), p[0]);
    if (case_.attention_rate > 0) {
      at::Tensor& bits = data_.block.attention_bits;
      bits = pass.keep_bits(pass.keep_attention, bits.numel(), kDraws * kNumber + 2).view(bits.sizes());
      data_.block.scale = pass.keep_attention.scale();
    }
    at::Tensor log_sums;
    const at::Tensor read =
        attention_of(PreNormAttentionReference::turned_by_heads(at::linear(normed1, p[1], p[2]), data_),
                     data_.block, log_sums);
    const at::Tensor x1 =
        exact[0].narrow(1, shape.length() - shape.rows, shape.rows) + at::linear(read, p[3], p[4]);
    const at::Tensor normed2 = normed(kept(x1, pass, 1), p[5]);
    return x1 + at::linear(at::silu(at::linear(normed2, p[6])) * at::linear(normed2, p[7]), p[8]);
  }

  static at::Tensor kept(const at::Tensor& x, const kernels::BlockPass& pass, int64_t draw) {
    if (pass.keep_hidden.always()) return x;
    const at::Tensor words = pass.keep_bits(pass.keep_hidden, (x.numel() + 31) / 32, kDraws * kNumber + draw);
    const at::Tensor bits = bits_of(words).flatten().narrow(0, 0, x.numel()).view(x.sizes());
    return x * bits.to(at::kDouble) * static_cast<double>(pass.keep_hidden.scale());
  }
  static at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
    return x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * weight;
  }

  PreNormBlockCase case_;
  at::Device device_;
  PreNormAttentionData data_;
  at::Tensor x_;
  std::vector<at::Tensor> parameters_;
};

/// With heads whose halves are whole vectors and others, one stream and two, all rows and fewer, MLPs of
/// widths of their own.
inline std::vector<PreNormBlockCase> pre_norm_cases_by_halves() {
  std::vector<PreNormBlockCase> all;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const double rate : {0.0, 0.2}) {
      all.push_back({{3, 21, 21, 128, 4, true}, 0.0, rate, 512, true, type});
      all.push_back({{3, 21, 1, 128, 2, true}, 0.0, rate, 512, true, type});
      all.push_back({{3, 21, 26, 96, 4, true, 21}, 0.0, rate, 264, true, type});
      all.push_back({{1, 9, 9, 768, 12, true, 9}, 0.0, rate, 3072, true, type});
    }
  }
  for (const int heads : {4, 8, 16}) {  // with the attention by our own kernels
    all.push_back({{3, 21, 26, 128, heads, true, 21}, 0.1, 0.2, 512, true});
  }
  all.push_back({{3, 37, 1, 96, 6, true}, 0.1, 0.2, 384, true});
  return all;
}

inline std::string name_of(const PreNormBlockCase& tried) {
  return name_of(FusedBlockCase{tried.shape, tried.hidden_rate}) + "_" + c10::toString(tried.type);
}

}  // namespace adtrain::testing
