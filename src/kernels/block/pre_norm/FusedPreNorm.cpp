#include "kernels/block/pre_norm/FusedPreNorm.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/GradientAccumulation.h"
#include "kernels/block/BlockOperation.h"
#include "kernels/block/attention_backward/AttentionBackward.h"
#include "kernels/block/pre_norm/PreNormAttention.h"
#include "kernels/block/swiglu/Swiglu.h"
#include "kernels/norm/Norm.h"
#include "kernels/norm/NormEpsilon.h"
#include "kernels/primitives/KernelOperation.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

/// Indices in the list of parameters.
enum : size_t {
  kNorm1Weight,
  kInProjWeight,
  kInProjBias,
  kOutProjWeight,
  kOutProjBias,
  kNorm2Weight,
  kW1,
  kW2,
  kW3,
  kParameters
};

/// What the forward pass keeps for the backward pass: inputs, dropout masks and intermediate results.
struct Remembered : torch::CustomClassHolder {
  Remembered(const at::Tensor& input, const BlockShape& block, const Rotary& rotary, int64_t number,
             const BlockPass& pass)
      : shape(block),
        main_gradients(pass.main_gradients),
        cosines(rotary.cosines.contiguous()),
        sines(rotary.sines.contiguous()),
        attention_scale(pass.keep_attention.scale()),
        kept1(kept_elements(pass, input.numel(), kDraws * number)),
        kept2(kept_elements(pass, block.all_rows() * block.width, kDraws * number + 1)),
        x(input) {
    if (!pass.keep_attention.always()) {
      attention_dropout_mask = pass.attention_dropout_mask(shape.attention_rows(), kDraws * number + 2);
    }
    const auto like = x.options().requires_grad(false);
    attention_output = at::empty({shape.sequences, shape.rows, shape.width}, like);
    lse = at::empty({shape.sequences, shape.heads, shape.rows}, like.dtype(at::kFloat));
    x1 = at::empty_like(attention_output);
  }

  PreNormAttention attention(at::TensorList parameters) const {
    return {values_of(normed1.y),
            values_of(parameters[kInProjWeight]),
            values_of(parameters[kInProjBias]),
            values_of(parameters[kOutProjWeight]),
            values_of(parameters[kOutProjBias]),
            cosines.const_data_ptr<float>(),
            sines.const_data_ptr<float>(),
            attention_dropout_mask.defined() ? words_of(attention_dropout_mask) : nullptr,
            attention_scale,
            values_of(attention_output),
            lse.data_ptr<float>()};
  }

  static constexpr int64_t kDraws = 3;  ///< dropout masks per block

  BlockShape shape;
  MainGradients* main_gradients;
  at::Tensor cosines, sines;
  float attention_scale;
  KeptElements kept1, kept2;
  at::Tensor attention_dropout_mask, x, attention_output, lse, x1;
  NormedInput normed1, normed2;
};

SwigluWeights swiglu_of(at::TensorList parameters) {
  return {values_of(parameters[kW1]), values_of(parameters[kW2]), values_of(parameters[kW3])};
}

class FusedPreNorm : public autograd::Function<FusedPreNorm> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            at::TensorList parameters, const Rotary& rotary, int64_t queries, int64_t rows,
                            int64_t number, const BlockPass& pass) {
    const c10::cuda::CUDAGuard guard(x.device());
    auto own = c10::make_intrusive<Remembered>(
        x.detach().contiguous(), block_shape(x, pass.heads, queries, rows), rotary, number, pass);
    const BlockShape& shape = own->shape;
    own->normed1 = normed_input(own->x, {parameters[kNorm1Weight], {}}, kNormEpsilon, own->kept1);
    pre_norm_attention(shape, own->attention(parameters), values_of(own->x), values_of(own->x1),
                       current_stream());
    own->normed2 = normed_input(own->x1, {parameters[kNorm2Weight], {}}, kNormEpsilon, own->kept2);
    const at::Tensor y = at::empty_like(own->x1);
    swiglu(shape.all_rows(), shape.width, swiglu_of(parameters), values_of(own->normed2.y),
           values_of(own->x1), values_of(y), current_stream());
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(own));
    return y;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto own = taken_from<Remembered>(context);
    const autograd::variable_list parameters = context->get_saved_variables();
    const c10::cuda::CUDAGuard guard(gradients[0].device());
    GradientAccumulation place(parameters, own->main_gradients);
    const at::Tensor of_mlp = place.of(kW1, kParameters - kW1);
    const at::Tensor mlp_parts =
        parts_for(swiglu_backward_parts(own->shape.all_rows(), own->shape.width), of_mlp);
    const at::Tensor dx1 = mlp_backward(*own, parameters, gradients[0].contiguous(), mlp_parts, place);
    const at::Tensor dx = attention_backward(*own, parameters, dx1, unadded(mlp_parts, of_mlp), place);
    autograd::variable_list result = place.finish();
    result.insert(result.begin(), dx);
    result.resize(result.size() + 5);  // rotary, queries, rows, number and pass get no gradients
    return result;
  }

 private:
  static at::Tensor mlp_backward(const Remembered& own, at::TensorList parameters, const at::Tensor& dy,
                                 const at::Tensor& parts, const GradientAccumulation& place) {
    const BlockShape& shape = own.shape;
    const int64_t rows = shape.all_rows();
    const at::Tensor dnormed =
        at::empty({swiglu_backward_terms(shape.width), rows, shape.width}, dy.options());
    swiglu_backward(rows, shape.width, swiglu_of(parameters), values_of(own.normed2.y), values_of(dy),
                    values_of(dnormed), parts.data_ptr<float>(), current_stream());
    return normed_input_backward(dnormed, own.normed2, {parameters[kNorm2Weight], {}}, kNormEpsilon,
                                 /*residual=*/dy, place.of(kNorm2Weight, 1))
        .d_x;
  }

  static at::Tensor attention_backward(const Remembered& own, at::TensorList parameters,
                                       const at::Tensor& dx1, const UnaddedParts& ahead,
                                       const GradientAccumulation& place) {
    const BlockShape& shape = own.shape;
    const at::Tensor dnormed = at::empty_like(own.x).unsqueeze(0);  // one term
    const at::Tensor sums = place.of(kInProjWeight, kNorm2Weight - kInProjWeight);
    const at::Tensor parts = parts_for(pre_norm_attention_backward_parts(shape), sums);
    const at::Tensor carried = at::empty({attention_backward_carried(shape)}, dnormed.options());
    pre_norm_attention_backward(shape, own.attention(parameters), values_of(dx1), values_of(dnormed),
                                parts.data_ptr<float>(), values_of(carried), ahead, current_stream());
    add_up(parts, sums);
    return normed_input_backward(dnormed, own.normed1, {parameters[kNorm1Weight], {}}, kNormEpsilon,
                                 /*residual=*/dx1, place.of(kNorm1Weight, 1))
        .d_x;
  }
};

}  // namespace

at::Tensor fused_pre_norm_block(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                const Rotary& rotary, int64_t queries, int64_t rows, int64_t number,
                                const BlockPass& pass) {
  return FusedPreNorm::apply(x, at::TensorList(parameters), rotary, queries, rows, number, pass);
}

}  // namespace adtrain::kernels
