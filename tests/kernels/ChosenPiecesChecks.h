#pragma once

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kernels/BlockChecks.h"
#include "kernels/attention/LibraryAttention.h"
#include "kernels/block/pre_norm/PreNormSublayers.h"

namespace adtrain::testing {

struct ChosenPiecesCase {
  kernels::PreNormPieces pieces;
  double hidden_rate;
  at::ScalarType type;
  int64_t width, heads, rows, inner;

  std::string name() const {
    return fmt::format("{}_{}_{}_{}_of_{}_{}", pieces.layer_norm ? "layer" : "rms",
                       pieces.gelu ? "gelu" : "swiglu",
                       hidden_rate == 0                ? "whole"
                       : pieces.drops_attention_output ? "dropped_attention"
                                                       : "dropped_norms",
                       rows, width, c10::toString(type));
  }
};

/// A pre-norm block of chosen pieces by sublayers, with libtorch's attention between its parts.
class ChosenPiecesCheck : public BlockCheck {
 public:
  ChosenPiecesCheck(const ChosenPiecesCase& tried, at::Device device)
      : BlockCheck({{3, kTokens, static_cast<int>(tried.rows), static_cast<int>(tried.width),
                     static_cast<int>(tried.heads), true},
                    /*attention_rate=*/0,
                    tried.hidden_rate,
                    tried.inner,
                    /*by_halves=*/true,
                    tried.type},
                   device),
        pieces_(tried.pieces) {
    const int64_t width = tried.width, inner = tried.inner;
    add_norm();
    add_linear(width, 3 * width, /*biased=*/true);
    add_linear(width, width, /*biased=*/true);
    add_norm();
    if (!pieces_.gelu) add_linear(width, inner, /*biased=*/false);
    add_linear(width, inner, pieces_.gelu);
    add_linear(inner, width, pieces_.gelu);
  }

 private:
  /// In a block: 0 for the first norm's input, 1 for the second one's or what attention adds.
  static constexpr int64_t kDraws = 3;
  static constexpr int kTokens = 21;

  void add_norm() {
    parameters_.push_back(random({shape().width}, 1));
    if (pieces_.layer_norm) parameters_.push_back(random({shape().width}, 0.2));
  }
  void add_linear(int64_t in, int64_t out, bool biased) {
    parameters_.push_back(random({out, in}, deviation()));
    if (biased) parameters_.push_back(random({out}, 0.2));
  }

  int64_t attention_draw() const override { return kDraws * kNumber + 2; }
  bool has_rope() const override { return false; }

  at::Tensor heads_of(const at::Tensor& projected) const {
    return projected.unflatten(-1, {3, shape().heads, -1}).permute({2, 0, 3, 1, 4});
  }

  at::Tensor found(const at::Tensor& x, const kernels::BlockPass& pass) const override {
    const auto after = parameters_.begin() + (pieces_.layer_norm ? 4 : 3);
    const auto [projected, residual] = kernels::pre_norm_before_attention(
        x, {parameters_.begin(), after}, pieces_, shape().rows, kNumber, pass);
    const at::Tensor attention_output =
        kernels::library_attention(heads_of(projected), shape().rows, streams(), {}, /*dropout_rate=*/0);
    return kernels::pre_norm_after_attention(attention_output, residual, {after, parameters_.end()}, pieces_,
                                             kNumber, pass);
  }

  at::Tensor reference(const std::vector<at::Tensor>& exact, const kernels::BlockPass& pass) const override {
    const at::Tensor* p = &exact[1];
    const auto norm = [&](const at::Tensor& x) {
      const at::Tensor centred = pieces_.layer_norm ? x - x.mean(-1, true) : x;
      const at::Tensor scaled = centred * at::rsqrt(centred.square().mean(-1, true) + 1e-5) * *p++;
      return pieces_.layer_norm ? scaled + *p++ : scaled;
    };
    const auto linear = [&](const at::Tensor& x, bool biased) {
      const at::Tensor y = at::linear(x, *p++);
      return biased ? y + *p++ : y;
    };
    const bool drops_norms = !pieces_.drops_attention_output;
    const at::Tensor qkv = heads_of(linear(norm(drops_norms ? kept(exact[0], pass, 0) : exact[0]), true));
    const at::Tensor later = at::ones({kTokens, kTokens}, qkv.options()).triu(1).to(at::kBool);
    const at::Tensor scores = at::matmul(qkv[0], qkv[1].transpose(2, 3)) *
                              std::sqrt(static_cast<double>(shape().heads) / shape().width);
    const at::Tensor read = at::matmul(at::softmax(scores.masked_fill(later, -INFINITY), -1), qkv[2]);
    at::Tensor of_attention = linear(last_rows(read.transpose(1, 2).flatten(2)), true);
    if (pieces_.drops_attention_output) of_attention = kept(of_attention, pass, 1);
    const at::Tensor x1 = last_rows(exact[0]) + of_attention;
    const at::Tensor normed = norm(drops_norms ? kept(x1, pass, 1) : x1);
    if (pieces_.gelu) return x1 + linear(at::gelu(linear(normed, true)), true);
    const at::Tensor gate = at::silu(linear(normed, false));
    return x1 + linear(gate * linear(normed, false), false);
  }

  static at::Tensor kept(const at::Tensor& x, const kernels::BlockPass& pass, int64_t draw) {
    return dropped(x, kernels::kept_elements(pass, x.numel(), kDraws * kNumber + draw));
  }

  kernels::PreNormPieces pieces_;
};

/// With every norm, MLP and place of dropout; heads of 24 features, which no attention of ours takes.
inline std::vector<ChosenPiecesCase> chosen_pieces_cases() {
  std::vector<ChosenPiecesCase> all;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const bool layer_norm : {true, false}) {
      for (const bool gelu : {true, false}) {
        for (const bool drops_attention_output : {true, false}) {
          const kernels::PreNormPieces pieces = {layer_norm, gelu, drops_attention_output};
          all.push_back({pieces, 0.2, type, 96, 4, 21, 264});
          all.push_back({pieces, 0.2, type, 72, 3, 1, 288});
        }
        all.push_back({{layer_norm, gelu, false}, 0, type, 120, 5, 21, 480});
      }
    }
  }
  return all;
}

}  // namespace adtrain::testing
