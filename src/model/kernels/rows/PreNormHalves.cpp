#include "model/kernels/rows/PreNormHalves.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/Layers.h"
#include "model/kernels/GradientPlace.h"
#include "model/kernels/KernelOperation.h"
#include "model/kernels/attention/ProjectedAttention.h"
#include "model/kernels/rows/GpuRows.h"
#include "model/kernels/rows/Products.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

/// Draws of dropout's bits in a block: of the first norm's input, of the second one's, of the attention.
constexpr int64_t kDraws = 3;

/// The first half's parameters, in the order in which they lie.
enum InputParameter : size_t { kNorm1Weight, kInProjWeight, kInProjBias, kInputParameters };

/// What the first half leaves for its backward pass.
struct Projected : torch::CustomClassHolder {
  at::Tensor x, normed;
  KeptElements kept;
  GradientSink* sink = nullptr;
};

/// x -> in_proj(norm(x)) (B, tokens, 3 width), and the last rows of x, which pass by the attention.
class BeforeAttention : public autograd::Function<BeforeAttention> {
 public:
  static autograd::variable_list forward(autograd::AutogradContext* context, const at::Tensor& x,
                                         at::TensorList parameters, int64_t rows, int64_t number,
                                         const BlockPass& pass) {
    const c10::cuda::CUDAGuard on_device(x.device());
    auto own = c10::make_intrusive<Projected>();
    own->sink = pass.sink;
    own->x = x;
    own->kept = kept_elements(pass, x.numel(), kDraws * number);
    own->normed = rms_normed(x, parameters[kNorm1Weight], kNormEpsilon, own->kept);
    const at::Tensor projected =
        product(own->normed, parameters[kInProjWeight], parameters[kInProjBias], search_if(pass.trains));
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(own));
    return {projected, last_of(x, 1, rows)};
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list p = context->get_saved_variables();
    const auto own = taken_from<Projected>(context);
    const c10::cuda::CUDAGuard on_device(own->x.device());
    GradientPlace place(p, own->sink);
    const at::Tensor d_projected = gradients[0].contiguous();
    add_weight_gradient(d_projected, own->normed, place.of(kInProjWeight));
    add_columns(d_projected, place.of(kInProjBias));
    const at::Tensor d_normed = input_gradient(d_projected, p[kInProjWeight]);
    const at::Tensor d_x =
        rms_normed_backward(d_normed.unsqueeze(0), own->x, p[kNorm1Weight], kNormEpsilon, own->kept,
                            /*residual=*/gradients[1], place.of(kNorm1Weight, 1));
    autograd::variable_list result = place.finish();
    result.insert(result.begin(), d_x);
    result.resize(result.size() + 3);  // rows, number and pass have no gradients
    return result;
  }
};

/// How far queries and keys have turned.
struct Turned : torch::CustomClassHolder {
  explicit Turned(const Rotary& by) : rotary(by) {}
  Rotary rotary;
};

/// in_proj's output (B, tokens, heads, 3, head size) -> queries of the last rows, keys and values, (B, heads,
/// …, head size), where queries and keys have turned. They are views of the input, which nobody else reads.
class TurnHeads : public autograd::Function<TurnHeads> {
 public:
  static autograd::variable_list forward(autograd::AutogradContext* context, const at::Tensor& projected,
                                         int64_t rows, const Rotary& rotary) {
    context->saved_data["remembered"] = c10::IValue::make_capsule(c10::make_intrusive<Turned>(rotary));
    turn_heads(projected, rotary);
    const std::vector<at::Tensor> kinds = projected.detach().transpose(1, 2).unbind(3);
    return {last_of(kinds[0], 2, rows), kinds[1], kinds[2]};
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto by_tokens = [&](size_t kind) { return gradients[kind].transpose(1, 2); };
    const at::Tensor d_projected =
        turn_heads_back(by_tokens(0), by_tokens(1), by_tokens(2), taken_from<Turned>(context)->rotary);
    return {d_projected, {}, {}};  // rows and rotary have no gradients
  }
};

/// in_proj's output (B, tokens, 3 width) -> what the last rows read (B, rows, width).
at::Tensor attention(const at::Tensor& projected, const Streams& streams, const Rotary& rotary, int64_t rows,
                     int64_t number, const BlockPass& pass) {
  if (!why_no_projected_attention(projected.device(), projected.scalar_type(), projected.size(-1) / 3,
                                  pass.heads,
                                  /*turns=*/true, streams)) {
    return projected_attention(projected, ProjectionOrder::kByHeads, rows, streams, rotary,
                               kDraws * number + 2, pass);
  }
  const at::Tensor by_heads = projected.unflatten(-1, {pass.heads, 3, -1});
  const double dropout_rate = pass.attention_rate;
  if (!turning_fits(by_heads.size(-1))) {
    return attend(by_heads.permute({3, 0, 2, 1, 4}), rows, streams, rotary.with_queries(streams),
                  dropout_rate);
  }
  const autograd::variable_list turned = TurnHeads::apply(by_heads, rows, rotary);
  return attend(turned[0], turned[1], turned[2], streams, dropout_rate);
}

/// The second half's parameters, in the order in which they lie.
enum OutputParameter : size_t { kOutProjWeight, kOutProjBias, kNorm2Weight, kW1, kW2, kW3 };
constexpr size_t kOfNormedSum = 2;  ///< the bias in front of the norm and the norm's weight are neighbours
constexpr size_t kGates = 2;        ///< W1 and W2, whose products are factors

/// W1 and W2 (inner, width) as one matrix (2 inner, width): a view where W2 lies behind W1, as it does in a
/// model.
at::Tensor gates_of(at::TensorList parameters) {
  const at::Tensor &w1 = parameters[kW1], &w2 = parameters[kW2];
  const bool neighbours = w1.is_contiguous() && w2.is_contiguous() && w1.is_alias_of(w2) &&
                          w2.storage_offset() == w1.storage_offset() + w1.numel();
  if (!neighbours) return at::cat({w1, w2});
  return w1.detach().as_strided({2 * w1.size(0), w1.size(1)}, w1.strides());
}

/// What the second half leaves for its backward pass.
struct Remembered : torch::CustomClassHolder {
  at::Tensor read, x1, normed, factors, inner;
  KeptElements kept;
  GradientSink* sink = nullptr;
};

/// What the attention read (B, rows, width), and the block's input there -> x1 = residual + out_proj(read),
/// then x1 + SwiGLU(norm(x1)).
class BehindAttention : public autograd::Function<BehindAttention> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& read,
                            const at::Tensor& residual, at::TensorList parameters, int64_t number,
                            const BlockPass& pass) {
    const c10::cuda::CUDAGuard on_device(read.device());
    const at::TensorList& p = parameters;
    const Search search = search_if(pass.trains);
    auto own = c10::make_intrusive<Remembered>();
    own->sink = pass.sink;
    own->read = read;
    own->kept = kept_elements(pass, residual.numel(), kDraws * number + 1);
    const RmsNormedSum sum = rms_normed_sum(residual, product(read, p[kOutProjWeight], {}, search),
                                            p[kOutProjBias], p[kNorm2Weight], kNormEpsilon, own->kept);
    own->x1 = sum.sum;
    own->normed = sum.y;
    own->factors = product(matrix(sum.y), gates_of(p), {}, search).unflatten(-1, {2, -1});
    own->inner = gated(own->factors);
    const at::Tensor y = sum_with_product(sum.sum, own->inner, p[kW3], search);
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(own));
    return y;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list p = context->get_saved_variables();
    const auto own = taken_from<Remembered>(context);
    const c10::cuda::CUDAGuard on_device(own->read.device());
    GradientPlace place(p, own->sink);

    const at::Tensor d_y = gradients[0].contiguous();
    add_weight_gradient(d_y, own->inner, place.of(kW3));
    const at::Tensor d_inner = input_gradient(matrix(d_y), p[kW3]);
    const at::Tensor d_factors = gated_backward(d_inner, own->factors).flatten(1), gates = gates_of(p);
    add_weight_gradient(d_factors, own->normed, place.of(kW1, kGates).view_as(gates));
    const at::Tensor d_normed = input_gradient(d_factors, gates).view_as(own->x1);

    const at::Tensor d_x1 =
        rms_normed_sum_backward(d_normed.unsqueeze(0), own->x1, p[kNorm2Weight], kNormEpsilon, own->kept,
                                /*residual=*/d_y, place.of(kOutProjBias, kOfNormedSum));
    add_weight_gradient(d_x1, own->read, place.of(kOutProjWeight));
    const at::Tensor d_read = input_gradient(d_x1, p[kOutProjWeight]);

    autograd::variable_list result = place.finish();
    result.insert(result.begin(), {d_read, d_x1});
    result.resize(result.size() + 2);  // number and pass have no gradients
    return result;
  }
};

}  // namespace

at::Tensor pre_norm_block_by_halves(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                    const Streams& streams, const Rotary& rotary, int64_t rows,
                                    int64_t number, const BlockPass& pass) {
  const at::TensorList all = parameters;
  const autograd::variable_list input =
      BeforeAttention::apply(x, all.slice(0, kInputParameters), rows, number, pass);
  const at::Tensor read = attention(input[0], streams, rotary, rows, number, pass);
  return BehindAttention::apply(read, input[1], all.slice(kInputParameters), number, pass);
}

}  // namespace adtrain::kernels
