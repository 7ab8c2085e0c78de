#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/BlockPass.h"
#include "kernels/GradientAccumulation.h"
#include "kernels/TokenStreams.h"
#include "kernels/attention/ProjectedAttention.h"
#include "kernels/norm/NormEpsilon.h"
#include "kernels/primitives/KernelOperation.h"
#include "kernels/rope/Rotary.h"

/// How a block that runs by sublayers goes through autograd; for the sources of PostNormSublayers and
/// PreNormSublayers. Attention runs between the block's two parts, on our own kernels or libtorch's.
///
/// A *part* is an object with one forward pass and one backward pass, which keeps what its backward pass
/// needs:
///
///     Tensors forward(at::TensorList inputs, at::TensorList parameters, const BlockCall& call);
///     Tensors backward(Tensors d_outputs, at::TensorList parameters, const GradientAccumulation& place);
///
/// The first part computes from the block's input the inputs of attention and, as last tensor, the residual.
/// Where its projection is ordered by thirds, its backward pass takes ProjectedAttention's column_parts, too.
/// The second part computes the block's output from the attention output and the residual. A *form* names its
/// parts Input (with its number of parameters, kParameters) and Output, and has
///
///     using LibraryInput = …;                             // the first part as libtorch's attention needs it
///     static constexpr bool kInputAttends = false;
///     static constexpr ProjectionOrder kOrder = …;        // of Input's projection
///     static int64_t attention_draw(int64_t number);      // the dropout mask's offset in the random stream
///     static at::Tensor attend(at::TensorList inputs, const TokenStreams&, const Rotary&, const BlockCall&);
///
/// Where kInputAttends, the first part does what attention does, too, and returns the second part's inputs;
/// Input, Output and kInputAttends are then all that the form has.
namespace adtrain::kernels {

using Tensors = std::vector<at::Tensor>;

/// Removes the last tensor and returns it.
inline at::Tensor popped(Tensors& tensors) {
  const at::Tensor last = tensors.back();
  tensors.pop_back();
  return last;
}

/// The call of one block in a pass.
struct BlockCall {
  const BlockPass& pass;
  int64_t rows;    ///< the block outputs this many of its last rows
  int64_t number;  ///< of the block in the pass
};

/// A part with the destination of its parameters' gradients. It frees the saved tensors as early as possible.
template <class Part>
class PartInPass {
 public:
  PartInPass() = default;
  explicit PartInPass(Part part) : part_(std::move(part)) {}

  Tensors forward(at::TensorList inputs, at::TensorList parameters, const BlockCall& call) {
    main_gradients_ = call.pass.main_gradients;
    Tensors outputs = part_.forward(inputs, parameters, call);
    if (!call.pass.trains) part_ = {};
    return outputs;
  }

  struct Gradients {
    Tensors inputs, parameters;  ///< see GradientAccumulation::finish
  };
  template <class... More>
  Gradients backward(Tensors d_outputs, at::TensorList parameters, const More&... more) {
    Part part = std::exchange(part_, {});
    GradientAccumulation place(parameters, main_gradients_);
    Tensors d_inputs = part.backward(std::move(d_outputs), parameters, place, more...);
    return {std::move(d_inputs), place.finish()};
  }

 private:
  Part part_;
  MainGradients* main_gradients_ = nullptr;
};

/// One part as one autograd function, from a part that has not run yet.
template <class Part>
class PartFunction : public torch::autograd::Function<PartFunction<Part>> {
 public:
  static Tensors forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                         at::TensorList parameters, const BlockCall& call, const Part& part) {
    const c10::cuda::CUDAGuard on_device(parameters[0].device());
    auto own = c10::make_intrusive<Remembered>(part);
    Tensors outputs = own->part.forward(inputs, parameters, call);
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(own));
    return outputs;
  }

  /// This function owns `d_outputs` and frees them as soon as they have been used.
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors& d_outputs) {
    const Tensors parameters = context->get_saved_variables();
    const c10::cuda::CUDAGuard on_device(parameters[0].device());
    auto [result, of_parameters] =
        taken_from<Remembered>(context)->part.backward(std::move(d_outputs), parameters);
    result.insert(result.end(), of_parameters.begin(), of_parameters.end());
    result.resize(result.size() + 2);  // call and part get no gradients
    return result;
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    explicit Remembered(const Part& of_call) : part(of_call) {}
    PartInPass<Part> part;
  };
};

/// The whole block as one autograd function, with our own attention between its parts or in the first one.
template <class Form>
class SublayerBlock : public torch::autograd::Function<SublayerBlock<Form>> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            at::TensorList parameters, const TokenStreams& streams, const Rotary& rotary,
                            const BlockCall& call) {
    const c10::cuda::CUDAGuard on_device(x.device());
    auto own = c10::make_intrusive<Remembered>();
    Tensors between = own->input.forward(x, of_input(parameters), call);
    if constexpr (!Form::kInputAttends) {
      const at::Tensor residual = popped(between);
      between = {own->attention.forward(between, Form::kOrder, call.rows, streams, rotary,
                                        Form::attention_draw(call.number), call.pass),
                 residual};
    }
    const at::Tensor y = own->output.forward(between, of_output(parameters), call)[0];
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(own));
    return y;
  }

  /// This function owns `d_y` and frees it as soon as it has been used.
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors& d_y) {
    const Tensors parameters = context->get_saved_variables();
    const c10::cuda::CUDAGuard on_device(parameters[0].device());
    const auto own = taken_from<Remembered>(context);
    auto [d_between, of_output_parameters] = own->output.backward(std::move(d_y), of_output(parameters));
    auto [result, of_input_parameters] = input_backward(*own, std::move(d_between), of_input(parameters));
    result.insert(result.end(), of_input_parameters.begin(), of_input_parameters.end());
    result.insert(result.end(), of_output_parameters.begin(), of_output_parameters.end());
    result.resize(result.size() + 3);  // streams, rotary and call get no gradients
    return result;
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    PartInPass<typename Form::Input> input;
    ProjectedAttention attention;
    PartInPass<typename Form::Output> output;
  };
  /// Of attention and the first part.
  static auto input_backward(Remembered& own, Tensors d_between, at::TensorList parameters) {
    if constexpr (Form::kInputAttends) {
      return own.input.backward(std::move(d_between), parameters);
    } else {
      auto [d_first, column_parts] = own.attention.backward(std::exchange(d_between[0], {}));
      d_first.push_back(std::exchange(d_between[1], {}));
      if constexpr (Form::kOrder == ProjectionOrder::kByThirds)
        return own.input.backward(std::move(d_first), parameters, column_parts);
      else
        return own.input.backward(std::move(d_first), parameters);
    }
  }
  static at::TensorList of_input(at::TensorList parameters) {
    return parameters.slice(0, Form::Input::kParameters);
  }
  static at::TensorList of_output(at::TensorList parameters) {
    return parameters.slice(Form::Input::kParameters);
  }
};

/// x (B, streams.tokens(), width) -> the block's output (B, call.rows, width). `parameters`: the first
/// part's, then the second part's. `rotary` covers the context; undefined for a form without rope. Only
/// libtorch's attention reads the masks of `streams`.
template <class Form>
at::Tensor block_by_sublayers(const at::Tensor& x, at::TensorList parameters, const TokenStreams& streams,
                              const Rotary& rotary, const BlockCall& call) {
  if (call.pass.own_attention) return SublayerBlock<Form>::apply(x, parameters, streams, rotary, call);
  using Input = typename Form::LibraryInput;
  Tensors between = PartFunction<Input>::apply(at::TensorList(x),
                                               parameters.slice(0, Form::Input::kParameters), call, Input());
  const at::Tensor residual = popped(between),
                   attention_output = Form::attend(between, streams, rotary, call);
  between = {attention_output, residual};
  using Output = typename Form::Output;
  return PartFunction<Output>::apply(at::TensorList(between), parameters.slice(Form::Input::kParameters),
                                     call, Output())[0];
}

}  // namespace adtrain::kernels
