#include "kernels/block/post_norm/PostNormSublayers.h"

#include <utility>

#include <ATen/ATen.h>

#include "kernels/attention/LibraryAttention.h"
#include "kernels/block/SublayerBlock.h"
#include "kernels/block/post_norm/LastTokenAttention.h"
#include "kernels/gemm/Columns.h"
#include "kernels/gemm/Gemm.h"
#include "kernels/mlp/GeluLayer.h"
#include "kernels/norm/Norm.h"

namespace adtrain::kernels {
namespace {

/// Offsets of a block's dropout masks in the random stream: for attention, and for everything after it.
enum Draw : int64_t { kOfAttention, kAfterAttention, kDraws };

/// The queries' part of a parameter (3 width, …), or of its gradient.
at::Tensor of_queries(const at::Tensor& of_all) {
  return of_all.narrow(0, 0, of_all.size(0) / 3);
}
at::Tensor of_others(const at::Tensor& of_all) {
  const int64_t width = of_all.size(0) / 3;
  return of_all.narrow(0, width, 2 * width);
}

/// Returns the matrices side by side, and adds the sums of their columns to `sums`. `parts`: partial sums of
/// one matrix's columns, where there are some.
at::Tensor joined(at::TensorList matrices, const at::Tensor& sums, const at::Tensor& parts = {}) {
  if (matrices.size() > 1) return joined_columns(matrices, sums);
  add_columns(matrices[0], sums, parts);
  return matrices[0];
}

/// x (B, tokens, width) -> queries, keys and values (B, tokens, 3 width). Where only the last tokens need
/// queries: the queries (B, rows, width), then keys and values (B, tokens, 2 width).
class BeforeAttention {
 public:
  enum Parameter : size_t { kWeight, kBias, kParameters };

  Tensors forward(at::TensorList inputs, at::TensorList p, const BlockCall& call) {
    x_ = inputs[0];
    const at::Tensor last = last_of(x_, 1, call.rows), &weight = p[kWeight], &bias = p[kBias];
    const Autotuning autotuning = autotuning_if(call.pass.trains);
    if (call.rows == x_.size(1)) return {product(x_, weight, bias, autotuning), last};
    return {product(last, of_queries(weight), of_queries(bias), autotuning),
            product(x_, of_others(weight), of_others(bias), autotuning), last};
  }

  /// The gradients of keys and values may be in one matrix or in two.
  Tensors backward(Tensors d_outputs, at::TensorList p, const GradientAccumulation& place,
                   const at::Tensor& column_parts = {}) {
    // The second part allocated the residual's gradient for this pass only, so it may be added to in place.
    at::Tensor d_x = popped(d_outputs).contiguous();
    const at::Tensor &weight = p[kWeight], d_weight = place.of(kWeight), d_bias = place.of(kBias);
    const int64_t rows = d_x.size(1);
    if (rows == x_.size(1)) {
      const at::Tensor d_all = joined(d_outputs, d_bias, column_parts);
      add_weight_gradient(d_all, x_, d_weight, place.addend());
      add_input_gradient(d_all, weight, d_x);
      return {d_x};
    }
    const at::Tensor d_of_queries = joined(d_outputs[0], of_queries(d_bias));
    add_weight_gradient(d_of_queries, last_of(x_, 1, rows), of_queries(d_weight), place.addend());
    add_input_gradient(d_of_queries, of_queries(weight), d_x);
    const at::Tensor d_of_others = joined(at::TensorList(d_outputs).slice(1), of_others(d_bias));
    add_weight_gradient(d_of_others, x_, of_others(d_weight), place.addend());
    const at::Tensor d_last = std::exchange(d_x, input_gradient(d_of_others, of_others(weight)).view_as(x_));
    last_of(d_x, 1, rows).add_(d_last);
    return {d_x};
  }

 private:
  at::Tensor x_;
};

/// The same with separate queries of the last rows, keys and values, by heads (B, heads, …, head size).
class BeforeAttentionByHeads {
 public:
  Tensors forward(at::TensorList inputs, at::TensorList parameters, const BlockCall& call) {
    const int64_t width = inputs[0].size(-1);
    Tensors matrices = part_.forward(inputs, parameters, call), result;
    const at::Tensor residual = popped(matrices);
    for (const at::Tensor& columns : matrices) {
      for (const at::Tensor& third : columns.split(width, -1)) {
        result.push_back(third.unflatten(-1, {call.pass.heads, -1}).transpose(1, 2));
      }
    }
    result.push_back(residual);
    return result;
  }

  Tensors backward(Tensors d_outputs, at::TensorList parameters, const GradientAccumulation& place) {
    for (size_t third = 0; third + 1 < d_outputs.size(); ++third) {
      d_outputs[third] = d_outputs[third].transpose(1, 2).flatten(2);
    }
    return part_.backward(std::move(d_outputs), parameters, place);
  }

 private:
  BeforeAttention part_;
};

/// The attention output (B, rows, width) and the block's input in these rows -> x1 = norm1(input +
/// drop(projection(attention output))), then norm2(x1 + MLP(x1)).
class AfterAttention {
 public:
  Tensors forward(at::TensorList inputs, at::TensorList p, const BlockCall& call) {
    const at::Tensor& residual = inputs[1];
    const int64_t inner_elements = residual.numel() / residual.size(-1) * p[kLinear1Bias].numel();
    const Autotuning autotuning = autotuning_if(call.pass.trains);
    attention_output_ = inputs[0];
    kept_ = kept_elements(call.pass, {residual.numel(), inner_elements, residual.numel()},
                          kDraws * call.number + kAfterAttention);
    sum1_ =
        normed_sum(residual, product(attention_output_, p[kProjectionWeight], {}, autotuning),
                   p[kProjectionBias], p[kNorm1Weight], p[kNorm1Bias], kNormEpsilon, kept_[kOfProjection]);
    multiply(p, autotuning);
    sum2_ = normed_sum(sum1_.y, product(inner_.y(), p[kLinear2Weight], {}, autotuning), p[kLinear2Bias],
                       p[kNorm2Weight], p[kNorm2Bias], kNormEpsilon, kept_[kOfOutput]);
    multiplies_again_ = call.pass.recomputes_mlp;
    if (multiplies_again_) inner_ = {};
    return {std::exchange(sum2_.y, {})};
  }

  Tensors backward(Tensors d_outputs, at::TensorList p, const GradientAccumulation& place) {
    if (multiplies_again_) multiply(p, Autotuning::kAllowed);
    const auto [d_y, d_product2] = normed_sum_backward(
        popped(d_outputs), sum2_, p[kNorm2Weight], kept_[kOfOutput], place.of(kLinear2Bias, kOfNormedSum));
    add_weight_gradient(d_product2, inner_.y(), place.of(kLinear2Weight), place.addend());
    const at::Tensor d_product =
        inner_.backward(d_product2, p[kLinear2Weight], p[kLinear1Bias], place.of(kLinear1Bias));
    add_weight_gradient(d_product, sum1_.y, place.of(kLinear1Weight), place.addend());
    add_input_gradient(d_product, p[kLinear1Weight], d_y);

    const auto [d_residual, d_product1] = normed_sum_backward(
        d_y, sum1_, p[kNorm1Weight], kept_[kOfProjection], place.of(kProjectionBias, kOfNormedSum));
    add_weight_gradient(d_product1, attention_output_, place.of(kProjectionWeight), place.addend());
    return {input_gradient(d_product1, p[kProjectionWeight]), d_residual};
  }

 private:
  /// In the order of the block's parameters.
  enum Parameter : size_t {
    kProjectionWeight,
    kProjectionBias,
    kNorm1Weight,
    kNorm1Bias,
    kLinear1Weight,
    kLinear1Bias,
    kLinear2Weight,
    kLinear2Bias,
    kNorm2Weight,
    kNorm2Bias
  };
  /// The bias before a norm and the norm's parameters are consecutive.
  static constexpr size_t kOfNormedSum = 3;
  enum Dropped : size_t { kOfProjection, kOfInner, kOfOutput };

  void multiply(at::TensorList p, Autotuning autotuning) {
    inner_ = GeluLayer(sum1_.y, p[kLinear1Weight], p[kLinear1Bias], kept_[kOfInner], autotuning);
  }

  at::Tensor attention_output_;
  GeluLayer inner_;
  NormedSum sum1_, sum2_;  ///< the second without y
  std::vector<KeptElements> kept_;
  bool multiplies_again_ = false;
};

struct Form {
  using Input = BeforeAttention;
  using LibraryInput = BeforeAttentionByHeads;
  using Output = AfterAttention;
  static constexpr bool kInputAttends = false;
  static constexpr ProjectionOrder kOrder = ProjectionOrder::kByThirds;

  static int64_t attention_draw(int64_t number) { return kDraws * number + kOfAttention; }
  static at::Tensor attend(at::TensorList inputs, const TokenStreams& streams, const Rotary& /*rotary*/,
                           const BlockCall& call) {
    return library_attention(inputs[0], inputs[1], inputs[2], streams, call.pass.attention_rate);
  }
};

/// Of a block of which the last token alone is needed.
struct LastTokenForm {
  struct Input : LastTokenAttention {
    Tensors forward(at::TensorList inputs, at::TensorList parameters, const BlockCall& call) {
      return LastTokenAttention::forward(inputs, parameters, call, Form::attention_draw(call.number));
    }
  };
  using Output = AfterAttention;
  static constexpr bool kInputAttends = true;
};

/// Whether the block's only row is a token that reads all of them.
bool last_token_reads_all(const TokenStreams& streams, int64_t rows) {
  return rows == 1 && streams.context > 1 && streams.queries == 0 && !streams.padded() && !streams.packed();
}

}  // namespace

at::Tensor post_norm_block_by_sublayers(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                        const TokenStreams& streams, int64_t rows, int64_t number,
                                        const BlockPass& pass) {
  if (last_token_reads_all(streams, rows))
    return SublayerBlock<LastTokenForm>::apply(x, at::TensorList(parameters), streams, Rotary(),
                                               BlockCall{pass, rows, number});
  return block_by_sublayers<Form>(x, parameters, streams, /*rotary=*/{}, {pass, rows, number});
}

}  // namespace adtrain::kernels
