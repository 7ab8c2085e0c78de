#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "kernels/BlockChecks.h"
#include "kernels/block/pre_norm/PreNormSublayers.h"

namespace adtrain::testing {

/// Of GPT-2's block by sublayers.
class Gpt2BlockCheck : public BlockCheck {
 public:
  Gpt2BlockCheck(const BlockCase& tried, at::Device device) : BlockCheck(tried, device) {
    const int64_t width = tried.shape.width;
    parameters_ = {random({width}, 1),
                   random({width}, 0.2),
                   random({3 * width, width}, deviation()),
                   random({3 * width}, 0.2),
                   random({width, width}, deviation()),
                   random({width}, 0.2),
                   random({width}, 1),
                   random({width}, 0.2),
                   random({tried.inner, width}, deviation()),
                   random({tried.inner}, 0.2),
                   random({width, tried.inner}, deviation()),
                   random({width}, 0.2)};
  }

 private:
  /// In a block: 1 for the outputs of attention and of the MLP, 2 for the attention.
  static constexpr int64_t kDraws = 3;

  int64_t attention_draw() const override { return kDraws * kNumber + 2; }
  bool has_rope() const override { return false; }

  at::Tensor found(const at::Tensor& x, const kernels::BlockPass& pass) const override {
    return kernels::gpt2_block_by_sublayers(x, parameters_, streams(), shape().rows, kNumber, pass);
  }

  at::Tensor reference(const std::vector<at::Tensor>& exact, const kernels::BlockPass& pass) const override {
    const at::Tensor& x = exact[0];
    const auto* p = &exact[1];
    const int64_t elements = shape().all_rows() * shape().width;
    const std::vector<kernels::KeptElements> masks =
        kernels::kept_elements(pass, {elements, elements}, kDraws * kNumber + 1);
    const auto normed = [&](const at::Tensor& of, const at::Tensor& weight, const at::Tensor& bias) {
      return at::layer_norm(of, {shape().width}, weight, bias);
    };
    const at::Tensor qkv = at::linear(normed(x, p[0], p[1]), p[2], p[3])
                               .unflatten(-1, {3, shape().heads, -1})
                               .permute({2, 0, 3, 1, 4});
    at::Tensor lse;
    const at::Tensor x1 =
        last_rows(x) + dropped(at::linear(attention_of(qkv, data_.block, lse), p[4], p[5]), masks[0]);
    const at::Tensor inner = at::gelu(at::linear(normed(x1, p[6], p[7]), p[8], p[9]), "tanh");
    return x1 + dropped(at::linear(inner, p[10], p[11]), masks[1]);
  }
};

/// With heads that our own attention takes and others, all rows and the last one.
inline std::vector<BlockCase> gpt2_cases() {
  std::vector<BlockCase> all;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const double rate : {0.0, 0.25}) {
      all.push_back({{3, 21, 21, 128, 4, true}, 0.0, rate, 512, true, type});
      all.push_back({{3, 22, 1, 128, 2, true}, 0.0, rate, 512, true, type});
      all.push_back({{2, 19, 19, 72, 3, true}, 0.0, rate, 288, true, type});
    }
  }
  for (const int heads : {4, 8, 16})  // with the attention by our own kernels
    all.push_back({{3, 22, 22, 128, heads, true}, 0.1, 0.2, 512, true});
  all.push_back({{1, 130, 130, 128, 2, true}, 0.1, 0.2, 512, true});
  all.push_back({{2, 70, 1, 128, 2, true}, 0.1, 0.2, 512, true});
  all.push_back({{2, 265, 265, 128, 4, true}, 0.1, 0.2, 512, true, at::kHalf});
  return all;
}

}  // namespace adtrain::testing
