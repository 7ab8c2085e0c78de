#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/Attention.h"
#include "model/Layers.h"
#include "model/kernels/BlockPass.h"
#include "model/kernels/GradientPlace.h"
#include "model/kernels/KernelOperation.h"
#include "model/kernels/attention/ProjectedAttention.h"

/// How the two forms of a block that runs by halves, PostNormHalves and PreNormHalves, go through autograd;
/// for their own sources. Between the halves is the attention, our own or libtorch's.
///
/// A *half* is an object that computes forward, remembers what its backward pass needs, and computes back,
/// once:
///
///     Tensors forward(at::TensorList inputs, at::TensorList parameters, const BlockCall& call);
///     Tensors backward(Tensors d_outputs, at::TensorList parameters, const GradientPlace& place);
///
/// The first one makes from the block's input what the attention reads and, last, the rows of the input that
/// pass the attention by; the second one makes the block's output from what was read and from these rows. A
/// *form* has them as Input, with its number of parameters, and Output, and
///
///     using LibraryInput = …;                             // the first half as libtorch's attention needs it
///     static constexpr ProjectionOrder kOrder = …;        // of what Input makes
///     static int64_t attention_draw(int64_t number);      // of dropout's bits
///     static at::Tensor attend(at::TensorList inputs, const Streams&, const Rotary&, const BlockCall&);
namespace adtrain::kernels {

using Tensors = std::vector<at::Tensor>;

/// The last one, which goes.
inline at::Tensor popped(Tensors& tensors) {
  const at::Tensor last = tensors.back();
  tensors.pop_back();
  return last;
}

/// One block's part in a pass.
struct BlockCall {
  const BlockPass& pass;
  int64_t rows;    ///< the last so many come out
  int64_t number;  ///< of the block in the pass
};

/// A half, which forgets as early as it can, and where gradients of its parameters go.
template <class Half>
class HalfInPass {
 public:
  Tensors forward(at::TensorList inputs, at::TensorList parameters, const BlockCall& call) {
    sink_ = call.pass.sink;
    Tensors outputs = half_.forward(inputs, parameters, call);
    if (!call.pass.trains) half_ = {};
    return outputs;
  }

  struct Gradients {
    Tensors inputs, parameters;  ///< see GradientPlace::finish
  };
  Gradients backward(Tensors d_outputs, at::TensorList parameters) {
    Half half = std::exchange(half_, {});
    GradientPlace place(parameters, sink_);
    Tensors d_inputs = half.backward(std::move(d_outputs), parameters, place);
    return {std::move(d_inputs), place.finish()};
  }

 private:
  Half half_;
  GradientSink* sink_ = nullptr;
};

/// A half by itself as one function of autograd.
template <class Half>
class HalfFunction : public torch::autograd::Function<HalfFunction<Half>> {
 public:
  static Tensors forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                         at::TensorList parameters, const BlockCall& call) {
    const c10::cuda::CUDAGuard on_device(parameters[0].device());
    auto own = c10::make_intrusive<Remembered>();
    Tensors outputs = own->half.forward(inputs, parameters, call);
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(own));
    return outputs;
  }

  /// `d_outputs` are ours, and go as early as they can.
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors& d_outputs) {
    const Tensors parameters = context->get_saved_variables();
    const c10::cuda::CUDAGuard on_device(parameters[0].device());
    auto [result, of_parameters] =
        taken_from<Remembered>(context)->half.backward(std::move(d_outputs), parameters);
    result.insert(result.end(), of_parameters.begin(), of_parameters.end());
    result.emplace_back();  // the call has no gradient
    return result;
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    HalfInPass<Half> half;
  };
};

/// The whole block as one function of autograd, with our own attention.
template <class Form>
class WholeBlock : public torch::autograd::Function<WholeBlock<Form>> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            at::TensorList parameters, const Streams& streams, const Rotary& rotary,
                            const BlockCall& call) {
    const c10::cuda::CUDAGuard on_device(x.device());
    auto own = c10::make_intrusive<Remembered>();
    Tensors between = own->input.forward(x, of_input(parameters), call);
    const at::Tensor residual = popped(between);
    const at::Tensor read = own->attention.forward(between, Form::kOrder, call.rows, streams, rotary,
                                                   Form::attention_draw(call.number), call.pass);
    between = {read, residual};
    const at::Tensor y = own->output.forward(between, of_output(parameters), call)[0];
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(own));
    return y;
  }

  /// `d_y` is ours, and goes as early as it can.
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors& d_y) {
    const Tensors parameters = context->get_saved_variables();
    const c10::cuda::CUDAGuard on_device(parameters[0].device());
    const auto own = taken_from<Remembered>(context);
    auto [d_between, of_output_parameters] = own->output.backward(std::move(d_y), of_output(parameters));
    Tensors d_first = own->attention.backward(std::exchange(d_between[0], {}));
    d_first.push_back(std::exchange(d_between[1], {}));
    auto [result, of_input_parameters] = own->input.backward(std::move(d_first), of_input(parameters));
    result.insert(result.end(), of_input_parameters.begin(), of_input_parameters.end());
    result.insert(result.end(), of_output_parameters.begin(), of_output_parameters.end());
    result.resize(result.size() + 3);  // streams, rotary and call have no gradients
    return result;
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    HalfInPass<typename Form::Input> input;
    ProjectedAttention attention;
    HalfInPass<typename Form::Output> output;
  };
  static at::TensorList of_input(at::TensorList parameters) {
    return parameters.slice(0, Form::Input::kParameters);
  }
  static at::TensorList of_output(at::TensorList parameters) {
    return parameters.slice(Form::Input::kParameters);
  }
};

/// x (B, streams.tokens(), width) -> the block's output (B, call.rows, width). `parameters`: the first
/// half's, then the second one's. `rotary` of the context, or undefined for a form without. Masks of
/// `streams` are read by libtorch's attention alone.
template <class Form>
at::Tensor block_by_halves(const at::Tensor& x, at::TensorList parameters, const Streams& streams,
                           const Rotary& rotary, const BlockCall& call) {
  const auto kind = AttentionKind::of(x.size(-1), call.pass.heads, streams, rotary.cosines.defined());
  if (!why_no_projected_attention(x.device(), x.scalar_type(), kind)) {
    return WholeBlock<Form>::apply(x, parameters, streams, rotary, call);
  }
  using Input = typename Form::LibraryInput;
  Tensors between =
      HalfFunction<Input>::apply(at::TensorList(x), parameters.slice(0, Form::Input::kParameters), call);
  const at::Tensor residual = popped(between), read = Form::attend(between, streams, rotary, call);
  between = {read, residual};
  return HalfFunction<typename Form::Output>::apply(at::TensorList(between),
                                                    parameters.slice(Form::Input::kParameters), call)[0];
}

}  // namespace adtrain::kernels
