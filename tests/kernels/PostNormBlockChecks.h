#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "kernels/BlockChecks.h"
#include "kernels/block/post_norm/FusedPostNorm.h"
#include "kernels/block/post_norm/PostNormSublayers.h"

namespace adtrain::testing {

/// Of a post-norm block.
class PostNormBlockCheck : public BlockCheck {
 public:
  PostNormBlockCheck(const BlockCase& tried, at::Device device) : BlockCheck(tried, device) {
    const int64_t width = tried.shape.width;
    parameters_ = {random({3 * width, width}, deviation()),
                   random({3 * width}, 0.2),
                   random({width, width}, deviation()),
                   random({width}, 0.2),
                   random({width}, 1),
                   random({width}, 0.2),
                   random({tried.inner, width}, deviation()),
                   random({tried.inner}, 0.2),
                   random({width, tried.inner}, deviation()),
                   random({width}, 0.2),
                   random({width}, 1),
                   random({width}, 0.2)};
  }

 private:
  /// In a block: 0 for the attention, 1 for the three places after it.
  static constexpr int64_t kDraws = 2;

  int64_t attention_draw() const override { return kDraws * kNumber; }
  bool has_rope() const override { return false; }
  bool last_token_reads_all() const override {
    return case_.by_halves && shape().rows == 1 && shape().queries == 0;
  }

  at::Tensor found(const at::Tensor& x, const kernels::BlockPass& pass) const override {
    const auto block =
        case_.by_halves ? kernels::post_norm_block_by_sublayers : kernels::fused_post_norm_block;
    return block(x, parameters_, streams(), shape().rows, kNumber, pass);
  }

  at::Tensor reference(const std::vector<at::Tensor>& exact, const kernels::BlockPass& pass) const override {
    const at::Tensor& x = exact[0];
    const auto* p = &exact[1];
    const int64_t elements = shape().all_rows() * shape().width;
    const std::vector<kernels::KeptElements> masks = kernels::kept_elements(
        pass, {elements, shape().all_rows() * case_.inner, elements}, kDraws * kNumber + 1);
    const auto normed = [&](const at::Tensor& sum, const at::Tensor& weight, const at::Tensor& bias) {
      return at::layer_norm(sum, {shape().width}, weight, bias);
    };
    const at::Tensor qkv =
        at::linear(x, p[0], p[1]).unflatten(-1, {3, shape().heads, -1}).permute({2, 0, 3, 1, 4});
    at::Tensor lse;
    const at::Tensor attention_output = attention_of(qkv, data_.block, lse);
    const at::Tensor x1 =
        normed(last_rows(x) + dropped(at::linear(attention_output, p[2], p[3]), masks[0]), p[4], p[5]);
    const at::Tensor inner = dropped(at::gelu(at::linear(x1, p[6], p[7])), masks[1]);
    return normed(x1 + dropped(at::linear(inner, p[8], p[9]), masks[2]), p[10], p[11]);
  }
};

/// With heads that our own attention takes and others, one stream and two, all rows and fewer.
inline std::vector<BlockCase> post_norm_cases_by_sublayers() {
  std::vector<BlockCase> all;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const double rate : {0.0, 0.25}) {
      all.push_back({{3, 21, 21, 128, 4, true}, 0.0, rate, 512, true, type});
      all.push_back({{3, 21, 1, 128, 2, true}, 0.0, rate, 512, true, type});
      all.push_back({{3, 21, 26, 96, 4, true, 21}, 0.0, rate, 384, true, type});
    }
  }
  for (const int heads : {4, 8, 16}) {  // with the attention by our own kernels
    all.push_back({{3, 21, 26, 128, heads, true, 21}, 0.1, 0.2, 512, true});
  }
  all.push_back({{3, 37, 1, 96, 6, true}, 0.1, 0.2, 384, true});
  all.push_back({{1, 130, 130, 128, 2, true}, 0.1, 0.2, 512, true});
  all.push_back({{2, 70, 1, 128, 2, true}, 0.1, 0.2, 512, true});
  all.push_back({{2, 300, 1, 96, 4, true}, 0.1, 0.2, 384, true});
  all.push_back({{2, 264, 1, 128, 4, true}, 0.1, 0.0, 512, true, at::kHalf});
  return all;
}

}  // namespace adtrain::testing
