#include "kernels/attention/ProjectedAttention.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/MatrixOperation.h"
#include "kernels/attention/HeadViews.h"
#include "kernels/attention/streaming/StreamingAttention.h"
#include "kernels/primitives/KernelOperation.h"
#include "kernels/rope/Rope.h"

namespace adtrain::kernels {
namespace {

/// Queries, keys and values by heads: views (B, rows, heads, head size) of the projections.
struct Views {
  at::Tensor queries, keys, values;

  /// `inputs`: one matrix or two, as in ProjectedAttention::forward; or their gradients.
  static Views of(at::TensorList inputs, ProjectionOrder order, int64_t heads) {
    const bool together = inputs.size() == 1;
    const at::Tensor& last = inputs.back();
    const int64_t kinds = together ? 3 : 2;
    const at::Tensor by_kind = order == ProjectionOrder::kByThirds
                                   ? last.unflatten(-1, {kinds, heads, -1})
                                   : last.unflatten(-1, {heads, kinds, -1}).transpose(2, 3);
    return {together ? by_kind.select(2, 0) : inputs[0].unflatten(-1, {heads, -1}),
            by_kind.select(2, kinds - 2), by_kind.select(2, kinds - 1)};
  }
};

/// Null for an undefined tensor.
float* floats_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

}  // namespace

/// What the forward pass keeps for the backward pass.
struct ProjectedAttention::Remembered {
  ProjectionOrder order = ProjectionOrder::kByThirds;
  BlockShape shape = {};
  std::vector<at::Tensor> inputs;
  at::Tensor cosines, sines, bits, attention_output, lse;
  Rotary rotated_by;  ///< where the kernels do not rotate themselves
  at::Tensor first;   ///< shape.first points to it; undefined without padding
  float scale = 1;

  /// See MultiheadAttentionGradients; undefined where they are not needed.
  struct Scratch {
    at::Tensor minus_deltas, longest_rows, from_queries;
  };

  MultiheadAttention attention() const {
    const Views views = Views::of(inputs, order, shape.heads);
    return {shape,
            matrix_of<const __nv_bfloat16>(last_rows(views.queries)),
            matrix_of<const __nv_bfloat16>(views.keys),
            matrix_of<const __nv_bfloat16>(views.values),
            floats_of(cosines),
            floats_of(sines),
            bits.defined() ? words_of(bits) : nullptr,
            scale,
            values_of(attention_output),
            lse.data_ptr<float>(),
            /*alibi=*/{},
            type_of(attention_output)};
  }
  /// Rotates queries and keys in a projection, or in its gradient.
  void rotate(const at::Tensor& projection, const Rotary& rotary) const {
    apply_rope(projection.unflatten(-1, {shape.heads, 3, -1}), rotary);
  }
  bool has_queries() const { return shape.queries > 0; }
  /// Whether attention's kernels add up the columns of their gradients, in the order of the projection.
  bool adds_columns() const {
    return attention().is_streaming() && !has_queries() && inputs.size() == 1 &&
           order == ProjectionOrder::kByThirds;
  }
  MultiheadAttentionGradients gradients(const at::Tensor& d_attention_output, const Gradients& result,
                                        const Scratch& scratch) const {
    const Views views = Views::of(result.inputs, order, shape.heads);
    return {values_of(d_attention_output),
            matrix_of<__nv_bfloat16>(last_rows(views.queries)),
            matrix_of<__nv_bfloat16>(views.keys),
            matrix_of<__nv_bfloat16>(views.values),
            static_cast<int>(views.queries.size(1)) - shape.rows,
            floats_of(scratch.minus_deltas),
            floats_of(scratch.longest_rows),
            floats_of(result.column_parts),
            scratch.from_queries.defined() ? values_of(scratch.from_queries) : nullptr};
  }

 private:
  at::Tensor last_rows(const at::Tensor& queries) const {
    return queries.narrow(1, queries.size(1) - shape.rows, shape.rows);
  }
};

at::Tensor ProjectedAttention::forward(at::TensorList inputs, ProjectionOrder order, int64_t rows,
                                       const TokenStreams& streams, const Rotary& rotary, int64_t draw,
                                       const BlockPass& pass) {
  const at::Tensor& keys = inputs.back();
  const c10::cuda::CUDAGuard on_device(keys.device());
  const int64_t width = inputs.size() == 1 ? keys.size(-1) / 3 : keys.size(-1) / 2;
  auto own = std::make_shared<Remembered>();
  own->order = order;
  own->shape = {static_cast<int>(keys.size(0)),
                static_cast<int>(streams.context),
                static_cast<int>(rows),
                static_cast<int>(width),
                static_cast<int>(pass.heads),
                /*causal=*/true,
                static_cast<int>(streams.queries)};
  if (streams.padded()) {
    own->first = streams.first;
    own->shape.first = own->first.const_data_ptr<int32_t>();
  }
  for (const at::Tensor& input : inputs) own->inputs.push_back(input.contiguous());
  if (rotary.cosines.defined()) {
    const Rotary dense = {rotary.cosines.contiguous(), rotary.sines.contiguous()};
    if (is_streaming_attention(streams.context, width / pass.heads, type_of(keys))) {
      own->rotated_by = dense;
      own->rotate(own->inputs[0], dense);
    } else {
      own->cosines = dense.cosines;
      own->sines = dense.sines;
    }
  }
  if (!pass.keep_attention.always()) {
    own->bits = pass.attention_dropout_mask(own->shape.attention_rows(), draw);
    own->scale = pass.keep_attention.scale();
  }
  const auto like = keys.options().requires_grad(false);
  own->attention_output = at::empty({keys.size(0), rows, width}, like);
  own->lse = at::empty({keys.size(0), pass.heads, rows}, like.dtype(at::kFloat));
  multihead_attention(own->attention(), current_stream());
  if (pass.trains) remembered_ = own;
  return own->attention_output;
}

ProjectedAttention::Gradients ProjectedAttention::backward(
    const at::Tensor& d_attention_output_of_any_strides) {
  const auto own = std::exchange(remembered_, nullptr);
  const c10::cuda::CUDAGuard on_device(own->attention_output.device());
  const at::Tensor d_attention_output = d_attention_output_of_any_strides.contiguous();
  Gradients result;
  for (const at::Tensor& input : own->inputs) {
    result.inputs.push_back(at::empty_like(input, input.options().requires_grad(false)));
  }
  const MultiheadAttention attention = own->attention();
  Remembered::Scratch scratch;
  if (attention.is_streaming()) {
    scratch.minus_deltas = at::empty_like(own->lse);
    scratch.longest_rows = at::empty({2, own->lse.size(0), own->lse.size(1)}, own->lse.options());
    if (own->has_queries() && own->shape.rows > own->shape.queries)
      scratch.from_queries = at::empty({2, own->shape.sequences, own->shape.tokens, own->shape.width},
                                       d_attention_output.options());
  }
  if (own->adds_columns()) {
    const int parts = own->shape.sequences * MultiheadAttentionGradients::blocks(own->shape.tokens);
    result.column_parts = at::empty({parts, int64_t{3} * own->shape.width}, own->lse.options());
  }
  multihead_attention_backward(attention, own->gradients(d_attention_output, result, scratch),
                               current_stream());
  // The inverse of a rotation has the opposite angle.
  if (const auto& [cosines, sines] = own->rotated_by; cosines.defined())
    own->rotate(result.inputs[0], {cosines, -sines});
  return result;
}

}  // namespace adtrain::kernels
