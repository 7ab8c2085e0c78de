#include "kernels/attention/StreamedAttention.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/BlockPass.h"
#include "kernels/attention/streaming/StreamingAttention.h"
#include "kernels/primitives/KernelOperation.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

/// Queries, keys or values (B, heads, tokens, head size), or their gradients.
template <class Value>
HeadMatrix<Value> matrix_of(const at::Tensor& heads) {
  return {values_of(heads), heads.stride(0), static_cast<int>(heads.stride(2)),
          static_cast<int>(heads.stride(1))};
}

/// The tensors of one call.
struct Call {
  at::Tensor qkv, bits, output, lse;
  at::Tensor longest_keys, first_keys;  ///< undefined without ALiBi
  double scale = 1;

  int64_t rows() const { return output.size(1); }
  at::Tensor queries_of(const at::Tensor& heads) const {
    return heads[0].narrow(2, heads.size(3) - rows(), rows());
  }
  BlockShape shape() const {
    return {static_cast<int>(qkv.size(1)),
            static_cast<int>(qkv.size(3)),
            static_cast<int>(rows()),
            static_cast<int>(output.size(2)),
            static_cast<int>(qkv.size(2)),
            /*causal=*/true};
  }
  MultiheadAttention attention() const {
    AlibiReach alibi = {};
    if (first_keys.defined()) alibi = {longest_keys.data_ptr<float>(), first_keys.data_ptr<int>()};
    return {shape(),
            matrix_of<const __nv_bfloat16>(queries_of(qkv)),
            matrix_of<const __nv_bfloat16>(qkv[1]),
            matrix_of<const __nv_bfloat16>(qkv[2]),
            /*cosines=*/nullptr,
            /*sines=*/nullptr,
            bits.defined() ? words_of(bits) : nullptr,
            static_cast<float>(scale),
            values_of(output),
            lse.data_ptr<float>(),
            alibi};
  }
};

class StreamedAttention : public autograd::Function<StreamedAttention> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& qkv, int64_t rows,
                            DistancePenalty penalty, double dropout_rate) {
    const c10::cuda::CUDAGuard on_device(qkv.device());
    const int64_t sequences = qkv.size(1), heads = qkv.size(2), tokens = qkv.size(3);
    const auto like = qkv.options().requires_grad(false);
    Call call;
    call.qkv = qkv;
    call.output = at::empty({sequences, rows, heads * qkv.size(4)}, like);
    call.lse = at::empty({sequences, heads, rows}, like.dtype(at::kFloat));
    const BlockPass pass(qkv, heads, dropout_rate, /*hidden_rate=*/0, /*own_attention=*/true, nullptr);
    if (!pass.keep_attention.always()) {
      call.bits = pass.attention_dropout_mask(call.shape().attention_rows(), /*number=*/0);
      call.scale = pass.keep_attention.scale();
    }
    if (penalty == DistancePenalty::kAlibi) {
      call.longest_keys = at::empty({sequences, heads}, call.lse.options());
      call.first_keys = at::empty({sequences, heads, AlibiReach::blocks(tokens)}, like.dtype(at::kInt));
    }
    streaming_attention(call.attention(), current_stream());
    context->save_for_backward(
        {call.qkv, call.bits, call.output, call.lse, call.longest_keys, call.first_keys});
    context->saved_data["scale"] = call.scale;
    return call.output;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const Call call = {
        saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], context->saved_data["scale"].toDouble()};
    const c10::cuda::CUDAGuard on_device(call.qkv.device());
    const at::Tensor d_output = gradients[0].contiguous();
    const at::Tensor d_qkv = at::empty_strided(call.qkv.sizes(), call.qkv.strides(), d_output.options());
    const MultiheadAttention attention = call.attention();
    const at::Tensor minus_deltas = at::empty_like(call.lse);
    const at::Tensor dscores = at::empty({streaming_attention_dscores(attention)}, d_output.options());
    streaming_attention_backward(
        attention,
        {values_of(d_output), matrix_of<__nv_bfloat16>(call.queries_of(d_qkv)),
         matrix_of<__nv_bfloat16>(d_qkv[1]), matrix_of<__nv_bfloat16>(d_qkv[2]),
         attention.shape.tokens - attention.shape.rows, minus_deltas.data_ptr<float>(), values_of(dscores)},
        current_stream());
    return {d_qkv, {}, {}, {}};
  }
};

}  // namespace

at::Tensor streamed_attention(const at::Tensor& qkv, int64_t rows, DistancePenalty penalty,
                              double dropout_rate) {
  return StreamedAttention::apply(qkv, rows, penalty, dropout_rate);
}

}  // namespace adtrain::kernels
