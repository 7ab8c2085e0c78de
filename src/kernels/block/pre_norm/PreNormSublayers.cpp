#include "kernels/block/pre_norm/PreNormSublayers.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/activation/Activation.h"
#include "kernels/attention/LibraryAttention.h"
#include "kernels/block/SublayerBlock.h"
#include "kernels/dropout/DroppedSum.h"
#include "kernels/gemm/Columns.h"
#include "kernels/gemm/Gemm.h"
#include "kernels/mlp/GeluLayer.h"
#include "kernels/norm/Norm.h"
#include "kernels/rope/Rope.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

/// Offsets of a block's dropout masks in the random stream: for the norms' inputs, or the second for the
/// outputs of attention and of the MLP, and for attention.
enum Draw : int64_t { kOfFirst, kOfSecond, kOfAttention, kDraws };

/// Indices of parameters that depend on the pieces.
size_t norm_parameters(const PreNormPieces& pieces) {
  return pieces.layer_norm ? 2 : 1;
}
NormWeights norm_at(at::TensorList p, size_t first, const PreNormPieces& pieces) {
  return {p[first], pieces.layer_norm ? p[first + 1] : at::Tensor()};
}

/// x -> in_proj(norm(x)) (B, tokens, 3 width), and the residual (B, rows, width).
class BeforeAttention {
 public:
  static constexpr size_t kParameters = 3;  ///< of pre_norm's pieces

  BeforeAttention() = default;
  explicit BeforeAttention(const PreNormPieces& pieces, const at::Tensor& bias = {})
      : pieces_(pieces), bias_(bias) {}

  Tensors forward(at::TensorList inputs, at::TensorList p, const BlockCall& call) {
    const at::Tensor& x = inputs[0];
    KeptElements kept;
    if (!pieces_.drops_attention_output)
      kept = kept_elements(call.pass, x.numel(), kDraws * call.number + kOfFirst);
    normed_ = normed_input(x, norm_at(p, 0, pieces_), kNormEpsilon, kept);
    const at::Tensor projected = product(normed_.y, p[weight()], bias_.defined() ? bias_ : p[weight() + 1],
                                         autotuning_if(call.pass.trains));
    if (pieces_.layer_norm) normed_.y.reset();
    return {projected, last_of(x, 1, call.rows)};
  }

  Tensors backward(Tensors d_outputs, at::TensorList p, const GradientAccumulation& place,
                   const at::Tensor& column_parts = {}) {
    const at::Tensor d_residual = popped(d_outputs), d_projected = popped(d_outputs).contiguous();
    if (!bias_.defined()) add_columns(d_projected, place.of(weight() + 1), column_parts);
    const at::Tensor d_normed = input_gradient(d_projected, p[weight()]);
    const auto [d_x, same, normed] =
        normed_input_backward(d_normed.unsqueeze(0), normed_, norm_at(p, 0, pieces_), kNormEpsilon,
                              d_residual, place.of(0, norm_parameters(pieces_)));
    add_weight_gradient(d_projected, normed, place.of(weight()));
    return {d_x};
  }

 private:
  /// The norm's parameters come first, then those of in_proj.
  size_t weight() const { return norm_parameters(pieces_); }

  PreNormPieces pieces_;
  at::Tensor bias_;     ///< where in_proj's is not among the parameters
  NormedInput normed_;  ///< LayerNorm's without y
};

/// The MLP of a block: of normed rows (rows, width), added to `sum`.
class PreNormMlp {
 public:
  explicit PreNormMlp(const PreNormPieces& pieces) : pieces_(pieces) {}

  /// Which elements of GELU's output are kept, all unless said.
  void drop_output(KeptElements kept) { kept_ = std::move(kept); }

  bool drops() const { return kept_.bits.defined(); }

  /// After multiply(). `p`: its parameters.
  at::Tensor added(const at::Tensor& sum, at::TensorList p, Autotuning autotuning) const {
    if (!pieces_.gelu) return sum_with_product(sum, inner_, p[kW3], {}, autotuning);
    if (!drops()) return sum_with_product(sum, gelu_.y(), p[kDown], p[kDownBias], autotuning);
    return dropped_sum(sum, product(gelu_.y(), p[kDown], {}, autotuning), p[kDownBias], kept_);
  }

  /// The same without dropout in the place of `sum`, which nobody else may read.
  void add_to(const at::Tensor& sum, at::TensorList p, Autotuning autotuning) const {
    if (!pieces_.gelu) return add_product(sum, inner_, p[kW3], {}, autotuning);
    add_product(sum, gelu_.y(), p[kDown], p[kDownBias], autotuning);
  }

  /// The first part of it, which the backward pass needs, too.
  void multiply(const at::Tensor& normed, at::TensorList p, Autotuning autotuning) {
    if (pieces_.gelu) {
      gelu_ = GeluLayer(normed, p[kUp], p[kUpBias], /*kept=*/{}, autotuning, pieces_.gelu_kind);
      return;
    }
    product_ = product(matrix(normed), gates_of(p), {}, autotuning).unflatten(-1, {2, -1});
    inner_ = gated(product_);
  }
  /// Where there is no backward pass: what it alone needs.
  void free_for_backward() {
    gelu_.free_slopes();
    product_.reset();
  }
  /// Until the backward pass multiplies again.
  void free_product() {
    gelu_ = {};
    product_.reset();
    inner_.reset();
  }

  /// The gradient of the first product (rows, …). Adds those of all parameters but its weights and, without
  /// dropout, the second one's bias.
  at::Tensor backward_of_product(const at::Tensor& d_output, at::TensorList p,
                                 const GradientAccumulation& place, size_t first) {
    const at::Tensor d_y =
        drops() ? dropped_sum_backward(d_output, kept_, place.of(first + kDownBias)) : d_output;
    if (!pieces_.gelu) {
      add_weight_gradient(d_y, inner_, place.of(first + kW3));
      return gated_backward(input_gradient(d_y, p[kW3]), product_).flatten(1);
    }
    add_weight_gradient(d_y, gelu_.y(), place.of(first + kDown));
    return gelu_.backward(d_y, p[kDown], p[kUpBias], place.of(first + kUpBias));
  }

  /// The weights of the first product, as one matrix.
  at::Tensor first_weight(at::TensorList p) const { return pieces_.gelu ? p[kUp] : gates_of(p); }
  /// The place of that of the last bias, where it is the sum of the rows' gradients; else undefined.
  at::Tensor last_bias_gradient(const GradientAccumulation& place, size_t first) const {
    return pieces_.gelu && !drops() ? place.of(first + kDownBias) : at::Tensor();
  }
  at::Tensor first_gradient(const GradientAccumulation& place, size_t first, const at::Tensor& weight) const {
    return place.of(first, pieces_.gelu ? 1 : kGates).view_as(weight);
  }

 private:
  enum OfGelu : size_t { kUp, kUpBias, kDown, kDownBias };
  enum OfSwiglu : size_t { kW1, kW2, kW3 };
  static constexpr size_t kGates = 2;  ///< W1 and W2, whose products are the factors

  /// W1 and W2 (inner, width) as one matrix (2 inner, width). It is a view where W2 follows W1 in memory, as
  /// in a model.
  static at::Tensor gates_of(at::TensorList parameters) {
    const at::Tensor &w1 = parameters[kW1], &w2 = parameters[kW2];
    const bool neighbours = w1.is_contiguous() && w2.is_contiguous() && w1.is_alias_of(w2) &&
                            w2.storage_offset() == w1.storage_offset() + w1.numel();
    if (!neighbours) return at::cat({w1, w2});
    return w1.detach().as_strided({2 * w1.size(0), w1.size(1)}, w1.strides());
  }

  PreNormPieces pieces_;
  KeptElements kept_;
  GeluLayer gelu_;
  // of SwiGLU
  at::Tensor product_;  ///< (rows, 2, inner width)
  at::Tensor inner_;
};

/// The attention output (B, rows, width) and the block's input in these rows -> x1 = input +
/// out_proj(attention output), then x1 + MLP(norm(x1)).
class AfterAttention {
 public:
  AfterAttention() = default;
  explicit AfterAttention(const PreNormPieces& pieces) : pieces_(pieces), mlp_(pieces) {}

  Tensors forward(at::TensorList inputs, at::TensorList p, const BlockCall& call) {
    const at::Tensor& residual = inputs[1];
    const Autotuning autotuning = autotuning_if(call.pass.trains);
    const NormWeights norm = norm_at(p, kNormWeight, pieces_);
    attention_output_ = inputs[0];
    const std::vector<int64_t> outputs(pieces_.drops_mlp_output ? 2 : 1, residual.numel());
    const std::vector<KeptElements> of_outputs =
        kept_elements(call.pass, outputs, kDraws * call.number + kOfSecond);
    const KeptElements& kept = of_outputs.front();
    if (pieces_.drops_mlp_output) mlp_.drop_output(of_outputs.back());
    if (pieces_.drops_attention_output && kept.bits.defined()) {
      normed_ = normed_sum_input(residual, product(attention_output_, p[kOutProjWeight], {}, autotuning),
                                 p[kOutProjBias], norm, kNormEpsilon, kept);
    } else {
      normed_ = normed_input(
          sum_with_product(residual, attention_output_, p[kOutProjWeight], p[kOutProjBias], autotuning), norm,
          kNormEpsilon, kept);
    }
    const at::TensorList mlp_parameters = p.slice(of_mlp());
    at::Tensor y = normed_.x.detach();  // in its place where nobody reads it
    mlp_.multiply(normed_.y, mlp_parameters, autotuning);
    if (!call.pass.trains) {
      mlp_.free_for_backward();
      normed_.y.reset();
    }
    if (!call.pass.trains && !mlp_.drops()) {
      mlp_.add_to(y, mlp_parameters, autotuning);
    } else if (call.pass.run == PartRun::kForValues) {
      y = mlp_.added(normed_.x, mlp_parameters, autotuning);
    }
    multiplies_again_ = call.pass.recomputes_mlp;
    if (multiplies_again_) mlp_.free_product();
    if (pieces_.layer_norm) normed_.y.reset();
    return {y};
  }

  Tensors backward(Tensors d_outputs, at::TensorList p, const GradientAccumulation& place) {
    const at::Tensor d_y = popped(d_outputs).contiguous();
    const at::TensorList mlp_parameters = p.slice(of_mlp());
    if (multiplies_again_) {
      if (pieces_.layer_norm) normed_.y = normed_again(p);
      mlp_.multiply(normed_.y, mlp_parameters, Autotuning::kAllowed);
    }
    const at::Tensor d_product = mlp_.backward_of_product(matrix(d_y), mlp_parameters, place, of_mlp()),
                     weight = mlp_.first_weight(mlp_parameters);
    const at::Tensor d_normed = input_gradient(d_product, weight).view_as(normed_.x);
    const auto [d_residual, d_projected, normed] = normed_sum_input_backward(
        d_normed.unsqueeze(0), normed_, norm_at(p, kNormWeight, pieces_), kNormEpsilon,
        /*residual=*/d_y, place.of(kOutProjBias, 1 + norm_parameters(pieces_)),
        mlp_.last_bias_gradient(place, of_mlp()));
    add_weight_gradient(d_product, normed, mlp_.first_gradient(place, of_mlp(), weight));
    add_weight_gradient(d_projected, attention_output_, place.of(kOutProjWeight));
    return {input_gradient(d_projected, p[kOutProjWeight]), d_residual};
  }

 private:
  /// In the order of the block's parameters; those of the norm and then of the MLP come next. The bias before
  /// the norm and the norm's are consecutive.
  enum Parameter : size_t { kOutProjWeight, kOutProjBias, kNormWeight };
  size_t of_mlp() const { return kNormWeight + norm_parameters(pieces_); }

  at::Tensor normed_again(at::TensorList p) const {
    const KeptElements kept = normed_.drops_product ? KeptElements() : normed_.kept;
    return normed_input(normed_.x, norm_at(p, kNormWeight, pieces_), kNormEpsilon, kept).y;
  }

  PreNormPieces pieces_;
  at::Tensor attention_output_;
  NormedInput normed_;  ///< LayerNorm's without y
  PreNormMlp mlp_{pieces_};
  bool multiplies_again_ = false;
};

/// The angles by which queries and keys have been rotated, kept for the backward pass.
struct Turned : torch::CustomClassHolder {
  explicit Turned(const Rotary& by) : rotary(by) {}
  Rotary rotary;
};

/// in_proj's output (B, tokens, heads, 3, head size) -> queries of the last rows, keys and values, (B, heads,
/// …, head size), with rotated queries and keys. They are views of the input, which is changed in place and
/// which nothing else may read.
class ApplyRope : public autograd::Function<ApplyRope> {
 public:
  static autograd::variable_list forward(autograd::AutogradContext* context, const at::Tensor& projected,
                                         int64_t rows, const Rotary& rotary) {
    context->saved_data["remembered"] = c10::IValue::make_capsule(c10::make_intrusive<Turned>(rotary));
    apply_rope(projected, rotary);
    const std::vector<at::Tensor> kinds = projected.detach().transpose(1, 2).unbind(3);
    return {last_of(kinds[0], 2, rows), kinds[1], kinds[2]};
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto by_tokens = [&](size_t kind) { return gradients[kind].transpose(1, 2); };
    const at::Tensor d_projected =
        apply_rope_backward(by_tokens(0), by_tokens(1), by_tokens(2), taken_from<Turned>(context)->rotary);
    return {d_projected, {}, {}};  // rows and rotary get no gradients
  }
};

struct Form {
  using Input = BeforeAttention;
  using LibraryInput = BeforeAttention;
  using Output = AfterAttention;
  static constexpr bool kInputAttends = false;
  static constexpr ProjectionOrder kOrder = ProjectionOrder::kByHeads;

  static int64_t attention_draw(int64_t number) { return kDraws * number + kOfAttention; }
  static at::Tensor attend(at::TensorList inputs, const TokenStreams& streams, const Rotary& rotary,
                           const BlockCall& call) {
    const at::Tensor by_heads = inputs[0].unflatten(-1, {call.pass.heads, 3, -1});
    const double dropout_rate = call.pass.attention_rate;
    if (!rope_fits(by_heads.size(-1))) {
      return library_attention(by_heads.permute({3, 0, 2, 1, 4}), call.rows, streams,
                               rotary.with_queries(streams), dropout_rate);
    }
    const autograd::variable_list rotated = ApplyRope::apply(by_heads, call.rows, rotary);
    return library_attention(rotated[0], rotated[1], rotated[2], streams, dropout_rate);
  }
};

/// Of GPT-2: the same parts of other pieces, the projection by thirds.
struct Gpt2Form {
  static constexpr PreNormPieces kPieces = {.layer_norm = true,
                                            .gelu = true,
                                            .drops_attention_output = true,
                                            .drops_mlp_output = true,
                                            .gelu_kind = GeluKind::kTanh};
  struct Input : BeforeAttention {
    static constexpr size_t kParameters = 4;
    Input() : BeforeAttention(kPieces) {}
  };
  using LibraryInput = Input;
  struct Output : AfterAttention {
    Output() : AfterAttention(kPieces) {}
  };
  static constexpr bool kInputAttends = false;
  static constexpr ProjectionOrder kOrder = ProjectionOrder::kByThirds;

  static int64_t attention_draw(int64_t number) { return Form::attention_draw(number); }
  static at::Tensor attend(at::TensorList inputs, const TokenStreams& streams, const Rotary& rotary,
                           const BlockCall& call) {
    const at::Tensor by_thirds = inputs[0].unflatten(-1, {3, call.pass.heads, -1});
    return library_attention(by_thirds.permute({2, 0, 3, 1, 4}), call.rows, streams, rotary,
                             call.pass.attention_rate);
  }
};

}  // namespace

PreNormAttentionInput pre_norm_before_attention(const at::Tensor& x,
                                                const std::vector<at::Tensor>& parameters,
                                                const PreNormPieces& pieces, int64_t rows, int64_t number,
                                                const BlockPass& pass, const at::Tensor& bias) {
  const Tensors outputs =
      PartFunction<BeforeAttention>::apply(at::TensorList(x), at::TensorList(parameters),
                                           BlockCall{pass, rows, number}, BeforeAttention(pieces, bias));
  return {outputs[0], outputs[1]};
}

at::Tensor pre_norm_after_attention(const at::Tensor& attention_output, const at::Tensor& residual,
                                    const std::vector<at::Tensor>& parameters, const PreNormPieces& pieces,
                                    int64_t number, const BlockPass& pass) {
  const Tensors inputs = {attention_output, residual};
  return PartFunction<AfterAttention>::apply(at::TensorList(inputs), at::TensorList(parameters),
                                             BlockCall{pass, residual.size(1), number},
                                             AfterAttention(pieces))[0];
}

at::Tensor pre_norm_block_by_sublayers(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                       const TokenStreams& streams, const Rotary& rotary, int64_t rows,
                                       int64_t number, const BlockPass& pass) {
  return block_by_sublayers<Form>(x, parameters, streams, rotary, {pass, rows, number});
}

at::Tensor gpt2_block_by_sublayers(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                   const TokenStreams& streams, int64_t rows, int64_t number,
                                   const BlockPass& pass) {
  return block_by_sublayers<Gpt2Form>(x, parameters, streams, /*rotary=*/{}, {pass, rows, number});
}

}  // namespace adtrain::kernels
