#include "kernels/attention/StreamedAttention.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/BlockPass.h"
#include "kernels/GradientAccumulation.h"
#include "kernels/MatrixOperation.h"
#include "kernels/attention/HeadViews.h"
#include "kernels/attention/streaming/StreamingAttention.h"
#include "kernels/attention/streaming/TwoStreams.h"
#include "kernels/norm/NormEpsilon.h"
#include "kernels/primitives/KernelOperation.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

/// Queries, keys or values (B, heads, tokens, head size), or their gradients.
template <class Value>
HeadMatrix<Value> matrix_of_heads(const at::Tensor& heads) {
  return matrix_of<Value>(heads.transpose(1, 2));
}

/// Whether the parameters are the projection's bias alone, and not those of norms.
bool is_projection_bias(at::TensorList parameters) {
  return parameters.size() == 1;
}
HeadNorms norms_of(at::TensorList parameters) {
  return is_projection_bias(parameters) ? HeadNorms() : HeadNorms::of(parameters);
}

/// The tensors of one call.
struct Call {
  at::Tensor qkv;
  HeadNorms norms;
  at::Tensor output, lse, bits = {};
  at::Tensor longest_keys = {}, first_keys = {};  ///< undefined without ALiBi
  float scale = 1;
  int64_t queries = 0;  ///< of a second stream
  TokenSegments segments = {};

  int64_t rows() const { return output.size(1); }
  /// Queries of the last rows. `heads`: queries and keys, or all three.
  at::Tensor queries_of(const at::Tensor& heads) const {
    return heads[0].narrow(2, heads.size(3) - rows(), rows());
  }
  /// As attention reads them: views of qkv where there are no norms.
  at::Tensor queries_and_keys() const {
    return norms.defined() ? normed_heads(qkv, norms, kNormEpsilon) : qkv.narrow(0, 0, 2);
  }
  BlockShape shape() const {
    return {static_cast<int>(qkv.size(1)),
            static_cast<int>(qkv.size(3) - queries),
            static_cast<int>(rows()),
            static_cast<int>(output.size(2)),
            static_cast<int>(qkv.size(2)),
            /*causal=*/true,
            static_cast<int>(queries)};
  }
  /// `read`: queries_and_keys(), borrowed.
  MultiheadAttention attention(const at::Tensor& read) const {
    AlibiReach alibi = {};
    if (first_keys.defined()) alibi = {longest_keys.data_ptr<float>(), first_keys.data_ptr<int>()};
    PackedSegments packed = {};
    if (segments.defined())
      packed = {segments.first.const_data_ptr<int>(), segments.end.const_data_ptr<int>()};
    return {shape(),
            matrix_of_heads<const __nv_bfloat16>(queries_of(read)),
            matrix_of_heads<const __nv_bfloat16>(read[1]),
            matrix_of_heads<const __nv_bfloat16>(qkv[2]),
            /*cosines=*/nullptr,
            /*sines=*/nullptr,
            bits.defined() ? words_of(bits) : nullptr,
            scale,
            values_of(output),
            lse.data_ptr<float>(),
            alibi,
            type_of(qkv),
            packed};
  }
};

class StreamedAttention : public autograd::Function<StreamedAttention> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& qkv,
                            at::TensorList parameters, int64_t rows, DistancePenalty penalty,
                            double dropout_rate, MainGradients* main_gradients, int64_t queries,
                            const TokenSegments& segments) {
    const c10::cuda::CUDAGuard on_device(qkv.device());
    const int64_t sequences = qkv.size(1), heads = qkv.size(2), tokens = qkv.size(3);
    const auto like = qkv.options().requires_grad(false);
    Call call = {.qkv = qkv,
                 .norms = norms_of(parameters),
                 .output = at::empty({sequences, rows, heads * qkv.size(4)}, like),
                 .lse = at::empty({sequences, heads, rows}, like.dtype(at::kFloat)),
                 .queries = queries,
                 .segments = segments};
    const BlockPass pass(qkv[0], heads, dropout_rate, /*hidden_rate=*/0, /*own_attention=*/true, nullptr);
    if (!pass.keep_attention.always()) {
      call.bits = pass.attention_dropout_mask(call.shape().attention_rows(), /*number=*/0);
      call.scale = pass.keep_attention.scale();
    }
    if (penalty == DistancePenalty::kAlibi) {
      call.longest_keys = at::empty({sequences, heads}, call.lse.options());
      const int64_t passes = queries > 0 ? 2 : 1;
      call.first_keys =
          at::empty({passes, sequences, heads, AlibiReach::blocks(tokens - queries)}, like.dtype(at::kInt));
    }
    const at::Tensor read = call.queries_and_keys();
    const auto attend = queries > 0 ? two_stream_attention : streaming_attention;
    attend(call.attention(read), current_stream());
    autograd::variable_list kept = {call.qkv,  call.output,       call.lse,
                                    call.bits, call.longest_keys, call.first_keys};
    kept.insert(kept.end(), parameters.begin(), parameters.end());
    context->save_for_backward(std::move(kept));
    context->saved_data["remembered"] = c10::IValue::make_capsule(
        c10::make_intrusive<Remembered>(call.scale, main_gradients, queries, segments));
    return call.output;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const auto remembered =
        c10::static_intrusive_pointer_cast<Remembered>(context->saved_data["remembered"].toCapsule());
    const at::TensorList parameters = at::TensorList(saved).slice(kTensors);
    const Call call = {.qkv = saved[0],
                       .norms = norms_of(parameters),
                       .output = saved[1],
                       .lse = saved[2],
                       .bits = saved[3],
                       .longest_keys = saved[4],
                       .first_keys = saved[5],
                       .scale = remembered->scale,
                       .queries = remembered->queries,
                       .segments = remembered->segments};
    const c10::cuda::CUDAGuard on_device(call.qkv.device());
    const at::Tensor d_output = gradients[0].contiguous();
    const at::Tensor d_qkv = at::empty_strided(call.qkv.sizes(), call.qkv.strides(), d_output.options());
    const at::Tensor read = call.queries_and_keys(),
                     d_read = call.norms.defined() ? at::empty_like(read) : d_qkv.narrow(0, 0, 2);
    const MultiheadAttention attention = call.attention(read);
    const at::Tensor minus_deltas = at::empty_like(call.lse);
    const at::Tensor longest_rows = at::empty({2, call.lse.size(0), call.lse.size(1)}, call.lse.options());
    at::Tensor column_parts;
    if (is_projection_bias(parameters)) {
      const int64_t parts =
          attention.shape.sequences * MultiheadAttentionGradients::blocks(attention.shape.tokens);
      column_parts = at::empty({parts, parameters[0].numel()}, call.lse.options());
    }
    at::Tensor from_queries;
    if (call.queries > 0 && call.rows() > call.queries) {
      from_queries =
          at::empty({2, call.qkv.size(1), attention.shape.tokens, attention.shape.width}, d_output.options());
    }
    const auto attend_backward =
        call.queries > 0 ? two_stream_attention_backward : streaming_attention_backward;
    attend_backward(
        attention,
        {values_of(d_output), matrix_of_heads<__nv_bfloat16>(call.queries_of(d_read)),
         matrix_of_heads<__nv_bfloat16>(d_read[1]), matrix_of_heads<__nv_bfloat16>(d_qkv[2]),
         attention.shape.length() - attention.shape.rows, minus_deltas.data_ptr<float>(),
         longest_rows.data_ptr<float>(), column_parts.defined() ? column_parts.data_ptr<float>() : nullptr,
         from_queries.defined() ? values_of(from_queries) : nullptr},
        current_stream());
    autograd::variable_list result = {d_qkv};
    if (!parameters.empty()) {
      GradientAccumulation place(parameters, remembered->main_gradients);
      const at::Tensor d_parameters = place.of(0, parameters.size());
      if (call.norms.defined()) {
        normed_heads_backward(d_read, call.qkv, call.norms, kNormEpsilon, d_qkv, d_parameters);
      } else {
        add_up(column_parts, d_parameters.flatten());
      }
      for (at::Tensor& gradient : place.finish()) result.push_back(std::move(gradient));
    }
    constexpr size_t kOthers = 6;  // what follows the parameters gets no gradients
    result.resize(result.size() + kOthers);
    return result;
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    Remembered(float of_kept, MainGradients* gradients_to, int64_t of_stream, TokenSegments of_rows)
        : scale(of_kept), main_gradients(gradients_to), queries(of_stream), segments(std::move(of_rows)) {}
    float scale;
    MainGradients* main_gradients;
    int64_t queries;
    TokenSegments segments;
  };
  static constexpr size_t kTensors = 6;  ///< that are kept, before the parameters
};

}  // namespace

at::Tensor streamed_attention(const at::Tensor& qkv, int64_t rows, DistancePenalty penalty,
                              double dropout_rate, const HeadNorms& norms, MainGradients* main_gradients,
                              const TokenStreams& streams, const at::Tensor& projection_bias) {
  std::vector<at::Tensor> parameters = norms.parameters();
  if (projection_bias.defined()) parameters.push_back(projection_bias);
  return StreamedAttention::apply(qkv, at::TensorList(parameters), rows, penalty, dropout_rate,
                                  main_gradients, streams.queries, streams.segments);
}

}  // namespace adtrain::kernels
