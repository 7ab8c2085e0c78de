#include "kernels/block/post_norm/LastTokenAttention.h"

#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "kernels/MatrixOperation.h"
#include "kernels/gemm/Columns.h"
#include "kernels/gemm/Gemm.h"

namespace adtrain::kernels {
namespace {

/// The part of a parameter (3 width, …), or of its gradient, for queries, keys or values.
enum Third : int64_t { kOfQueries, kOfKeys, kOfValues };
at::Tensor third(const at::Tensor& of_all, Third number) {
  const int64_t width = of_all.size(0) / 3;
  return of_all.narrow(0, number * width, width);
}

/// (width, …) -> (heads, head size, …), a view.
at::Tensor rows_by_heads(const at::Tensor& parameter, int64_t heads) {
  return parameter.unflatten(0, {heads, -1});
}

/// (B, 1, width) -> (heads, B, head size), a view.
at::Tensor by_heads(const at::Tensor& row, int64_t heads) {
  return row.squeeze(1).unflatten(-1, {heads, -1}).transpose(0, 1);
}

}  // namespace

LastQuery LastTokenAttention::kernels_call() const {
  const int64_t head_size = x_.size(2) / heads_;
  return {static_cast<int>(x_.size(0)),
          static_cast<int>(heads_),
          static_cast<int>(x_.size(1)),
          static_cast<int>(head_size),
          1 / std::sqrt(static_cast<float>(head_size)),
          kept_.defined() ? words_of(kept_) : nullptr,
          kept_scale_,
          type_of(x_)};
}

Tensors LastTokenAttention::forward(at::TensorList inputs, at::TensorList p, const BlockCall& call,
                                    int64_t dropout_number) {
  x_ = inputs[0].contiguous();
  heads_ = call.pass.heads;
  const int64_t sequences = x_.size(0), tokens = x_.size(1);
  const at::Tensor &weight = p[kWeight], &bias = p[kBias], last = last_of(x_, 1, 1);
  const auto fp32 = x_.options().dtype(at::kFloat).requires_grad(false);
  if (!call.pass.keep_attention.always()) {
    const AttentionRows rows = {sequences * heads_, static_cast<int>(tokens), /*queries=*/0, /*rows=*/1,
                                /*causal=*/true};
    kept_ = call.pass.attention_dropout_mask(rows, dropout_number);
    kept_scale_ = call.pass.keep_attention.scale();
  }
  query_ = product(last, third(weight, kOfQueries), third(bias, kOfQueries), autotuning_if(call.pass.trains));
  vectors_ = at::empty({2 * heads_, sequences, x_.size(2)}, x_.options().requires_grad(false));
  at::Tensor key_vectors = vectors_.narrow(0, heads_, heads_);
  at::bmm_out(key_vectors, by_heads(query_, heads_), rows_by_heads(third(weight, kOfKeys), heads_));
  probabilities_ = products_in_fp32(key_vectors.transpose(0, 1), x_.transpose(1, 2));
  weights_ = at::empty({sequences, 2 * heads_, tokens}, vectors_.options());
  sums_ = at::empty({sequences, heads_}, fp32);
  last_query_weights(kernels_call(), probabilities_.data_ptr<float>(), weights_.data_ptr(),
                     weights_.stride(0), sums_.data_ptr<float>(), current_stream());
  averages_ = at::bmm(weights_.narrow(1, 0, heads_), x_);
  const at::Tensor without_bias =
      at::bmm(averages_.transpose(0, 1), rows_by_heads(third(weight, kOfValues), heads_).transpose(1, 2));
  const at::Tensor output =
      at::addcmul(without_bias.transpose(0, 1), sums_.to(x_.scalar_type()).unsqueeze(-1),
                  rows_by_heads(third(bias, kOfValues), heads_));
  return {output.reshape({sequences, 1, -1}), last};
}

Tensors LastTokenAttention::backward(Tensors d_outputs, at::TensorList p, const GradientAccumulation& place) {
  // The second part allocated the residual's gradient for this pass only, so it may be added to in place.
  const at::Tensor d_last = popped(d_outputs).contiguous(), d_output = d_outputs[0].contiguous();
  const at::Tensor &weight = p[kWeight], &bias = p[kBias];
  const at::Tensor d_weight = place.of(kWeight), d_bias = place.of(kBias);
  const at::Tensor value_bias = third(bias, kOfValues).contiguous();

  // What the output is of the averages, the weights and the bias of values.
  const at::Tensor d_by_heads = by_heads(d_output, heads_);
  at::Tensor value_vectors = vectors_.narrow(0, 0, heads_);
  at::bmm_out(value_vectors, d_by_heads, rows_by_heads(third(weight, kOfValues), heads_));
  add_products(d_by_heads.transpose(1, 2), averages_.transpose(0, 1),
               rows_by_heads(third(d_weight, kOfValues), heads_));
  add_columns(d_output.squeeze(1)
                  .unflatten(-1, {heads_, -1})
                  .mul(sums_.to(x_.scalar_type()).unsqueeze(-1))
                  .flatten(1),
              third(d_bias, kOfValues));

  // The scores, and the vectors that they are products of.
  const at::Tensor d_weights = products_in_fp32(value_vectors.transpose(0, 1), x_.transpose(1, 2));
  const at::Tensor d_scores = weights_.narrow(1, heads_, heads_);
  last_query_gradients(kernels_call(), probabilities_.const_data_ptr<float>(),
                       d_weights.const_data_ptr<float>(), d_output.const_data_ptr(),
                       value_bias.const_data_ptr(), d_scores.data_ptr(), weights_.stride(0),
                       current_stream());
  const at::Tensor d_key_vectors = at::bmm(d_scores, x_).transpose(0, 1);
  add_products(by_heads(query_, heads_).transpose(1, 2), d_key_vectors,
               rows_by_heads(third(d_weight, kOfKeys), heads_));

  // The last token's query.
  const at::Tensor d_query =
      at::bmm(d_key_vectors, rows_by_heads(third(weight, kOfKeys), heads_).transpose(1, 2))
          .transpose(0, 1)
          .reshape(d_output.sizes());
  add_weight_gradient(d_query, last_of(x_, 1, 1), third(d_weight, kOfQueries));
  add_columns(matrix(d_query), third(d_bias, kOfQueries));
  add_input_gradient(d_query, third(weight, kOfQueries), d_last);

  at::Tensor d_x = at::bmm(weights_.transpose(1, 2), vectors_.transpose(0, 1));
  last_of(d_x, 1, 1).add_(d_last);
  return {d_x};
}

}  // namespace adtrain::kernels
