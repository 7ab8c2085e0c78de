#include "model/kernels/attention/ProjectedAttention.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/kernels/KernelOperation.h"
#include "model/kernels/attention/HeadAttention.h"
#include "model/kernels/attention/LongAttention.h"
#include "model/kernels/fused/FusedDevice.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

/// Queries, keys and values by heads, views (B, rows, heads, head size) of projections.
struct Views {
  at::Tensor queries, keys, values;

  /// `inputs`: what projected_attention() takes, one matrix or two; or their gradients.
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

template <class Value>
HeadMatrix<Value> matrix_of(const at::Tensor& view) {
  return {values_of(view), view.stride(0), static_cast<int>(view.stride(1)),
          static_cast<int>(view.stride(2))};
}

/// What a forward pass leaves for its backward pass, beside what it got and gave.
struct Remembered : torch::CustomClassHolder {
  ProjectionOrder order = ProjectionOrder::kByThirds;
  BlockShape shape = {};
  at::Tensor cosines, sines, bits, log_sums;
  at::Tensor first;  ///< of the shape, where sequences begin with padding
  float scale = 1;

  HeadAttention attention(at::TensorList inputs, const at::Tensor& read) const {
    const Views views = Views::of(inputs, order, shape.heads);
    const auto floats_of = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
    };
    return {shape,
            matrix_of<const __nv_bfloat16>(last_rows(views.queries)),
            matrix_of<const __nv_bfloat16>(views.keys),
            matrix_of<const __nv_bfloat16>(views.values),
            floats_of(cosines),
            floats_of(sines),
            bits.defined() ? words_of(bits) : nullptr,
            scale,
            values_of(read),
            log_sums.data_ptr<float>()};
  }
  /// `minus_deltas`, `dscores`: see there, undefined where they are not asked for.
  HeadAttentionGradients gradients(const at::Tensor& d_read, at::TensorList d_inputs,
                                   const at::Tensor& minus_deltas, const at::Tensor& dscores) const {
    const Views views = Views::of(d_inputs, order, shape.heads);
    return {values_of(d_read),
            matrix_of<__nv_bfloat16>(last_rows(views.queries)),
            matrix_of<__nv_bfloat16>(views.keys),
            matrix_of<__nv_bfloat16>(views.values),
            static_cast<int>(views.queries.size(1)) - shape.rows,
            minus_deltas.defined() ? minus_deltas.data_ptr<float>() : nullptr,
            dscores.defined() ? values_of(dscores) : nullptr};
  }

 private:
  at::Tensor last_rows(const at::Tensor& queries) const {
    return queries.narrow(1, queries.size(1) - shape.rows, shape.rows);
  }
};

class ProjectedAttention : public autograd::Function<ProjectedAttention> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, at::TensorList inputs, ProjectionOrder order,
                            int64_t rows, const Streams& streams, const Rotary& rotary, int64_t draw,
                            const BlockPass& pass) {
    const at::Tensor& keys = inputs.back();
    const c10::cuda::CUDAGuard on_device(keys.device());
    const int64_t width = inputs.size() == 1 ? keys.size(-1) / 3 : keys.size(-1) / 2;
    auto own = c10::make_intrusive<Remembered>();
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
    if (rotary.cosines.defined()) {
      own->cosines = rotary.cosines.contiguous();
      own->sines = rotary.sines.contiguous();
    }
    if (!pass.keep_attention.always()) {
      own->bits = pass.keep_bits(pass.keep_attention, own->shape.attention_words(), draw);
      own->scale = pass.keep_attention.scale();
    }
    const auto like = keys.options().requires_grad(false);
    const at::Tensor read = at::empty({keys.size(0), rows, width}, like);
    own->log_sums = at::empty({keys.size(0), pass.heads, rows}, like.dtype(at::kFloat));
    autograd::variable_list saved;
    for (const at::Tensor& input : inputs) saved.push_back(input.contiguous());
    head_attention(own->attention(saved, read), current_stream());
    saved.push_back(read);
    context->save_for_backward(std::move(saved));
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(own));
    return read;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    autograd::variable_list inputs = context->get_saved_variables();
    const at::Tensor read = inputs.back();
    inputs.pop_back();
    const auto own = taken_from<Remembered>(context);
    const c10::cuda::CUDAGuard on_device(read.device());
    const at::Tensor d_read = gradients[0].contiguous();
    autograd::variable_list result;
    for (const at::Tensor& input : inputs) {
      result.push_back(at::empty_like(input, input.options().requires_grad(false)));
    }
    const HeadAttention attention = own->attention(inputs, read);
    at::Tensor minus_deltas, dscores;
    if (attention.is_long()) {
      minus_deltas = at::empty_like(own->log_sums);
      dscores = at::empty({long_attention_dscores(attention)}, d_read.options());
    }
    head_attention_backward(attention, own->gradients(d_read, result, minus_deltas, dscores),
                            current_stream());
    result.resize(result.size() + 6);  // order, rows, streams, rotary, draw and pass have no gradients
    return result;
  }
};

}  // namespace

std::optional<std::string> why_no_projected_attention(const at::Device& device, at::ScalarType type,
                                                      int64_t width, int64_t heads, bool turns,
                                                      const Streams& streams) {
  if (auto why = why_no_fused_kernels(device)) return why;
  if (type != at::kBFloat16) return "it is for mixed_precision: bf16";
  const int64_t head_size = width / heads;
  if (width % kGroupColumns != 0 ||
      (head_size != 8 && head_size != 16 && head_size != 32 && head_size != 64)) {
    return fmt::format(
        "there is none for width {} with heads of {}; it is for multiples of {} and heads of 8, 16, 32 or 64",
        width, head_size, kGroupColumns);
  }
  if (head_size < 32 && streams.context > kMostTokensAtHand) {
    return fmt::format("sequences have {} tokens; with heads of {} it is for at most {}", streams.context,
                       head_size, kMostTokensAtHand);
  }
  if (is_long_attention(streams.context, head_size) && (turns || streams.queries != 0 || streams.padded())) {
    return fmt::format(
        "with heads of {} and {} tokens it is for the loss at the last position, without rotary positions "
        "or compressed context",
        head_size, streams.context);
  }
  return std::nullopt;
}

at::Tensor projected_attention(const at::Tensor& projected, ProjectionOrder order, int64_t rows,
                               const Streams& streams, const Rotary& rotary, int64_t draw,
                               const BlockPass& pass) {
  return ProjectedAttention::apply(at::TensorList(projected), order, rows, streams, rotary, draw, pass);
}

at::Tensor projected_attention(const at::Tensor& queries, const at::Tensor& keys_and_values,
                               const Streams& streams, const Rotary& rotary, int64_t draw,
                               const BlockPass& pass) {
  const std::vector<at::Tensor> inputs = {queries, keys_and_values};
  return ProjectedAttention::apply(at::TensorList(inputs), ProjectionOrder::kByThirds, queries.size(1),
                                   streams, rotary, draw, pass);
}

}  // namespace adtrain::kernels
