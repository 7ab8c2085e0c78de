#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "kernels/BlockChecks.h"
#include "kernels/block/pre_norm/FusedPreNorm.h"
#include "kernels/block/pre_norm/PreNormSublayers.h"

namespace adtrain::testing {

/// Of a pre-norm block.
class PreNormBlockCheck : public BlockCheck {
 public:
  PreNormBlockCheck(const BlockCase& tried, at::Device device) : BlockCheck(tried, device) {
    const int64_t width = tried.shape.width;
    parameters_ = {random({width}, 1),
                   random({3 * width, width}, deviation()),
                   random({3 * width}, 0.2),
                   random({width, width}, deviation()),
                   random({width}, 0.2),
                   random({width}, 1),
                   random({tried.inner, width}, deviation()),
                   random({tried.inner, width}, deviation()),
                   random({width, tried.inner}, 0.8 * deviation())};
  }

 private:
  /// In a block: 0 for the first norm's input, 1 for the second one's, 2 for the attention.
  static constexpr int64_t kDraws = 3;

  int64_t attention_draw() const override { return kDraws * kNumber + 2; }
  bool has_rope() const override { return true; }

  at::Tensor found(const at::Tensor& x, const kernels::BlockPass& pass) const override {
    const Rotary rotary = {data_.cosines, data_.sines};
    if (case_.by_halves) {
      return kernels::pre_norm_block_by_sublayers(x, parameters_, streams(), rotary, shape().rows, kNumber,
                                                  pass);
    }
    return kernels::fused_pre_norm_block(x, parameters_, rotary, shape().queries, shape().rows, kNumber,
                                         pass);
  }

  at::Tensor reference(const std::vector<at::Tensor>& exact, const kernels::BlockPass& pass) const override {
    const auto* p = &exact[1];
    const at::Tensor normed1 = normed(kept(exact[0], pass, 0), p[0]);
    at::Tensor lse;
    const at::Tensor attention_output =
        attention_of(PreNormAttentionReference::rotated_by_heads(at::linear(normed1, p[1], p[2]), data_),
                     data_.block, lse);
    const at::Tensor x1 = last_rows(exact[0]) + at::linear(attention_output, p[3], p[4]);
    const at::Tensor normed2 = normed(kept(x1, pass, 1), p[5]);
    return x1 + at::linear(at::silu(at::linear(normed2, p[6])) * at::linear(normed2, p[7]), p[8]);
  }

  static at::Tensor kept(const at::Tensor& x, const kernels::BlockPass& pass, int64_t draw) {
    return dropped(x, kernels::kept_elements(pass, x.numel(), kDraws * kNumber + draw));
  }
  static at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
    return x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * weight;
  }
};

/// With heads whose halves are whole vectors and others, one stream and two, all rows and fewer, MLPs of
/// widths of their own.
inline std::vector<BlockCase> pre_norm_cases_by_sublayers() {
  std::vector<BlockCase> all;
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

}  // namespace adtrain::testing
