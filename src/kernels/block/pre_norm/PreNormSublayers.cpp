#include "kernels/block/pre_norm/PreNormSublayers.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/activation/Activation.h"
#include "kernels/attention/LibraryAttention.h"
#include "kernels/block/SublayerBlock.h"
#include "kernels/gemm/Columns.h"
#include "kernels/gemm/Gemm.h"
#include "kernels/norm/Norm.h"
#include "kernels/rope/Rope.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

/// Offsets of a block's dropout masks in the random stream: for the norms' inputs, and for attention.
enum Draw : int64_t { kOfNorm1, kOfNorm2, kOfAttention, kDraws };

/// x -> in_proj(norm(x)) (B, tokens, 3 width).
class BeforeAttention {
 public:
  /// In the order of the block's parameters.
  enum Parameter : size_t { kNormWeight, kInProjWeight, kInProjBias, kParameters };

  Tensors forward(at::TensorList inputs, at::TensorList p, const BlockCall& call) {
    x_ = inputs[0];
    kept_ = kept_elements(call.pass, x_.numel(), kDraws * call.number + kOfNorm1);
    normed_ = rms_normed(x_, p[kNormWeight], kNormEpsilon, kept_);
    return {product(normed_, p[kInProjWeight], p[kInProjBias], autotuning_if(call.pass.trains)),
            last_of(x_, 1, call.rows)};
  }

  Tensors backward(Tensors d_outputs, at::TensorList p, const GradientAccumulation& place) {
    const at::Tensor d_residual = popped(d_outputs), d_projected = popped(d_outputs).contiguous();
    add_weight_gradient(d_projected, normed_, place.of(kInProjWeight));
    add_columns(d_projected, place.of(kInProjBias));
    const at::Tensor d_normed = input_gradient(d_projected, p[kInProjWeight]);
    return {rms_normed_backward(d_normed.unsqueeze(0), x_, p[kNormWeight], kNormEpsilon, kept_, d_residual,
                                place.of(kNormWeight, 1))};
  }

 private:
  at::Tensor x_, normed_;
  KeptElements kept_;
};

/// The attention output (B, rows, width) and the block's input in these rows -> x1 = input +
/// out_proj(attention output), then x1 + SwiGLU(norm(x1)).
class AfterAttention {
 public:
  Tensors forward(at::TensorList inputs, at::TensorList p, const BlockCall& call) {
    const at::Tensor& residual = inputs[1];
    const Autotuning autotuning = autotuning_if(call.pass.trains);
    attention_output_ = inputs[0];
    kept_ = kept_elements(call.pass, residual.numel(), kDraws * call.number + kOfNorm2);
    sum_ = rms_normed_sum(residual, product(attention_output_, p[kOutProjWeight], {}, autotuning),
                          p[kOutProjBias], p[kNormWeight], kNormEpsilon, kept_);
    factors_ = product(matrix(sum_.y), gates_of(p), {}, autotuning).unflatten(-1, {2, -1});
    inner_ = gated(factors_);
    return {sum_with_product(sum_.sum, inner_, p[kW3], autotuning)};
  }

  Tensors backward(Tensors d_outputs, at::TensorList p, const GradientAccumulation& place) {
    const at::Tensor d_y = popped(d_outputs).contiguous();
    add_weight_gradient(d_y, inner_, place.of(kW3));
    const at::Tensor d_inner = input_gradient(matrix(d_y), p[kW3]);
    const at::Tensor d_factors = gated_backward(d_inner, factors_).flatten(1), gates = gates_of(p);
    add_weight_gradient(d_factors, sum_.y, place.of(kW1, kGates).view_as(gates));
    const at::Tensor d_normed = input_gradient(d_factors, gates).view_as(sum_.sum);

    const at::Tensor d_sum =
        rms_normed_sum_backward(d_normed.unsqueeze(0), sum_.sum, p[kNormWeight], kNormEpsilon, kept_,
                                /*residual=*/d_y, place.of(kOutProjBias, kOfNormedSum));
    add_weight_gradient(d_sum, attention_output_, place.of(kOutProjWeight));
    return {input_gradient(d_sum, p[kOutProjWeight]), d_sum};
  }

 private:
  /// In the order of the block's parameters.
  enum Parameter : size_t { kOutProjWeight, kOutProjBias, kNormWeight, kW1, kW2, kW3 };
  static constexpr size_t kOfNormedSum = 2;  ///< the bias before the norm and its weight are consecutive
  static constexpr size_t kGates = 2;        ///< W1 and W2, whose products are the factors

  /// W1 and W2 (inner, width) as one matrix (2 inner, width). It is a view where W2 follows W1 in memory, as
  /// in a model.
  static at::Tensor gates_of(at::TensorList parameters) {
    const at::Tensor &w1 = parameters[kW1], &w2 = parameters[kW2];
    const bool neighbours = w1.is_contiguous() && w2.is_contiguous() && w1.is_alias_of(w2) &&
                            w2.storage_offset() == w1.storage_offset() + w1.numel();
    if (!neighbours) return at::cat({w1, w2});
    return w1.detach().as_strided({2 * w1.size(0), w1.size(1)}, w1.strides());
  }

  at::Tensor attention_output_, factors_, inner_;
  RmsNormedSum sum_;
  KeptElements kept_;
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

}  // namespace

at::Tensor pre_norm_block_by_sublayers(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                       const TokenStreams& streams, const Rotary& rotary, int64_t rows,
                                       int64_t number, const BlockPass& pass) {
  return block_by_sublayers<Form>(x, parameters, streams, rotary, {pass, rows, number});
}

}  // namespace adtrain::kernels
