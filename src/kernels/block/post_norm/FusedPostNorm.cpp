#include "kernels/block/post_norm/FusedPostNorm.h"

#include <algorithm>
#include <array>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/GradientAccumulation.h"
#include "kernels/block/BlockOperation.h"
#include "kernels/block/attention_backward/AttentionBackward.h"
#include "kernels/block/forward/BlockForward.h"
#include "kernels/block/mlp_backward/MlpBackward.h"
#include "kernels/embedding/FusedEmbedding.h"
#include "kernels/primitives/KernelOperation.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

constexpr size_t kParameters = 12, kOfAttention = 6;  ///< the first six belong to the attention sublayer

/// The dropout masks of one block: for the attention weights, and for the three hidden tensors.
class BlockDropoutMasks {
 public:
  /// `follows_own`: the kernel ahead on the stream is that of the block before, or of the embedding, which
  /// keeps its memory and is younger than the draw.
  BlockDropoutMasks(const BlockShape& shape, const BlockPass& pass, int64_t number, bool follows_own)
      : words_of_sequence_(int64_t{shape.rows} * shape.width / 32),
        sequences_(shape.sequences),
        attention_scale_(pass.keep_attention.scale()),
        hidden_scale_(pass.keep_hidden.scale()),
        masks_(pass.dropout_masks(shape.attention_rows(),
                                  {words_of_sequence_, kInner * words_of_sequence_, words_of_sequence_},
                                  2 * number, follows_own)) {}

  DropoutMasks keep() const {
    if (!masks_.attention.defined()) return {nullptr, nullptr, nullptr, nullptr, 1.0f, 1.0f};
    const uint32_t* hidden = words_of(masks_.hidden);
    const int64_t words = sequences_ * words_of_sequence_;
    return {words_of(masks_.attention),    hidden,           hidden + words,
            hidden + (1 + kInner) * words, attention_scale_, hidden_scale_};
  }

 private:
  static constexpr int64_t kInner = 4;  ///< times as wide is the inner one of the hidden tensors

  int64_t words_of_sequence_;  ///< for rows as wide as the block
  int64_t sequences_;
  float attention_scale_, hidden_scale_;
  BlockPass::Masks masks_;
};

BlockWeights weights_of(at::TensorList parameters) {
  std::array<const __nv_bfloat16*, kParameters> at;
  std::transform(parameters.begin(), parameters.end(), at.begin(), values_of);
  return {at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8], at[9], at[10], at[11]};
}

/// What the forward pass keeps for the backward pass.
struct Remembered : torch::CustomClassHolder {
  Remembered(const at::Tensor& input, const at::Tensor& first_tokens, const BlockShape& block,
             BlockDropoutMasks dropout, MainGradients* to)
      : shape(block), bits(std::move(dropout)), main_gradients(to), first(first_tokens), x(input) {
    const auto like = x.options().requires_grad(false), fp32 = like.dtype(at::kFloat);
    attention_output = at::empty({shape.all_rows(), shape.width}, like);
    lse = at::empty({shape.sequences, shape.heads, shape.rows}, fp32);
    for (Norm* norm : {&norm1, &norm2}) {
      norm->normed = at::empty({shape.all_rows(), shape.width}, like);
      norm->inverse = at::empty({shape.all_rows()}, fp32);
    }
  }

  BlockActivations activations() const {
    return {values_of(x),
            values_of(attention_output),
            lse.data_ptr<float>(),
            values_of(norm1.normed),
            norm1.inverse.data_ptr<float>(),
            values_of(norm2.normed),
            norm2.inverse.data_ptr<float>()};
  }

  struct Norm {
    at::Tensor normed, inverse;
  };
  BlockShape shape;
  BlockDropoutMasks bits;
  MainGradients* main_gradients;
  at::Tensor first;  ///< shape.first points to it; undefined without padding
  at::Tensor x, attention_output, lse;
  Norm norm1, norm2;
};

class FusedPostNorm : public autograd::Function<FusedPostNorm> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            at::TensorList parameters, const TokenStreams& streams, int64_t rows,
                            int64_t number, const BlockPass& pass) {
    const c10::cuda::CUDAGuard guard(x.device());
    BlockShape shape = block_shape(x, pass.heads, streams.queries, rows);
    if (streams.padded()) shape.first = streams.first.const_data_ptr<int32_t>();
    auto remembered = c10::make_intrusive<Remembered>(
        x.contiguous(), streams.first, shape, BlockDropoutMasks(shape, pass, number, follows_own(x, pass)),
        pass.main_gradients);
    at::Tensor y = at::empty({x.size(0), rows, x.size(2)}, x.options().requires_grad(false));
    block_forward(shape, weights_of(parameters), remembered->bits.keep(), remembered->activations(),
                  values_of(y), current_stream());
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(remembered));
    return y;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto remembered = taken_from<Remembered>(context);
    const autograd::variable_list parameters = context->get_saved_variables();
    GradientAccumulation place(parameters, remembered->main_gradients);
    const at::Tensor dx = backward_to(*remembered, weights_of(parameters), gradients[0], place);
    autograd::variable_list result = place.finish();
    result.insert(result.begin(), dx);
    result.resize(result.size() + 4);  // streams, rows, number and pass get no gradients
    return result;
  }

 private:
  /// Whether x is the output of such a block, or of the embedding, whose backward pass is to come. Neither
  /// is followed by other kernels before the next block, but for those that make a new draw.
  static bool follows_own(const at::Tensor& x, const BlockPass& pass) {
    return (is_fused_embedding(x) && pass.draw_is_older) ||
           dynamic_cast<autograd::CppNode<FusedPostNorm>*>(x.grad_fn().get()) != nullptr;
  }

  static at::Tensor backward_to(const Remembered& remembered, const BlockWeights& weights,
                                const at::Tensor& gradient, const GradientAccumulation& place) {
    const c10::cuda::CUDAGuard guard(gradient.device());
    const cudaStream_t stream = current_stream();
    const BlockShape& shape = remembered.shape;
    const at::Tensor of_attention = place.of(0, kOfAttention),
                     of_mlp = place.of(kOfAttention, kParameters - kOfAttention);
    const at::Tensor dy = gradient.contiguous();
    const at::Tensor dx1 = at::empty_like(dy),
                     dx = at::empty_like(remembered.x, remembered.x.options().requires_grad(false));
    const at::Tensor mlp_parts = parts_for(mlp_backward_parts(shape), of_mlp);
    mlp_backward(shape, weights, remembered.bits.keep(), remembered.activations(), values_of(dy),
                 values_of(dx1), mlp_parts.data_ptr<float>(), stream);
    const at::Tensor attention_parts = parts_for(attention_backward_parts(shape), of_attention);
    const at::Tensor carried = at::empty({attention_backward_carried(shape)}, dx.options());
    attention_backward(shape, weights, remembered.bits.keep(), remembered.activations(), values_of(dx1),
                       values_of(dx), attention_parts.data_ptr<float>(), values_of(carried),
                       unadded(mlp_parts, of_mlp), stream);
    add_up(attention_parts, of_attention);
    return dx;
  }
};

}  // namespace

at::Tensor fused_post_norm_block(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                 const TokenStreams& streams, int64_t rows, int64_t number,
                                 const BlockPass& pass) {
  return FusedPostNorm::apply(x, at::TensorList(parameters), streams, rows, number, pass);
}

}  // namespace adtrain::kernels
