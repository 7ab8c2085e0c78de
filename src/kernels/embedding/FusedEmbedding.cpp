#include "kernels/embedding/FusedEmbedding.h"

#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/GradientAccumulation.h"
#include "kernels/MatrixOperation.h"
#include "kernels/embedding/TokenEmbedding.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

/// The index of each parameter of the embedding in the list of the parameters that the network has.
struct EmbeddingPlaces {
  size_t context_weight, context_bias, query_states;
  std::optional<size_t> types, positions;

  static EmbeddingPlaces of(bool learns_positions) {
    if (learns_positions)
      return {.context_weight = 0, .context_bias = 1, .query_states = 3, .types = 2, .positions = 4};
    return {.context_weight = 0, .context_bias = 1, .query_states = 2, .types = {}, .positions = {}};
  }
};

class FusedEmbedding : public autograd::Function<FusedEmbedding> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, at::TensorList parameters,
                            const TransitionColumns& columns, const TokenShape& shape,
                            const EmbeddingPlaces& places, MainGradients* main_gradients) {
    const c10::cuda::CUDAGuard guard(parameters.front().device());
    auto remembered = c10::make_intrusive<Remembered>(columns, shape, places, main_gradients);
    const auto like = parameters.front().options().requires_grad(false);
    at::Tensor x = at::empty({shape.sequences, shape.tokens(), shape.width}, like);
    at::Tensor& zeros = remembered->zeros;
    if (!places.positions) zeros = at::zeros({shape.transitions, shape.width}, like);
    embed_tokens(shape, remembered->transitions(),
                 {values_of(parameters[places.context_weight]), values_of(parameters[places.context_bias]),
                  places.types ? values_of(parameters[*places.types]) : values_of(zeros),
                  values_of(parameters[places.query_states]),
                  values_of(places.positions ? parameters[*places.positions] : zeros)},
                 values_of(x), current_stream());
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(remembered));
    return x;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto remembered = taken_from<Remembered>(context);
    const autograd::variable_list parameters = context->get_saved_variables();
    const TokenShape& shape = remembered->shape;
    const EmbeddingPlaces& places = remembered->places;
    const c10::cuda::CUDAGuard guard(gradients[0].device());
    const at::Tensor dx = gradients[0].contiguous();
    const auto fp32 = dx.options().dtype(at::kFloat);
    GradientAccumulation place(parameters, remembered->main_gradients);
    const auto gradient_of = [&](size_t parameter) { return place.of(parameter).data_ptr<float>(); };
    const at::Tensor room = at::empty({embedding_partial_sums(shape)}, fp32);
    at::Tensor nowhere;  // for gradients of parameters that the network does not have
    if (!places.positions) nowhere = at::zeros({shape.transitions + 1, shape.width}, fp32);
    embed_tokens_backward(shape, remembered->transitions(), values_of(dx), room.data_ptr<float>(),
                          {gradient_of(places.context_weight), gradient_of(places.context_bias),
                           places.types ? gradient_of(*places.types) : nowhere[0].data_ptr<float>(),
                           gradient_of(places.query_states),
                           places.positions ? gradient_of(*places.positions) : nowhere[1].data_ptr<float>()},
                          current_stream());
    autograd::variable_list result = place.finish();
    result.resize(result.size() + 4);  // columns, shape, places and main gradients get no gradients
    return result;
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    Remembered(const TransitionColumns& columns, const TokenShape& of_tokens,
               const EmbeddingPlaces& of_parameters, MainGradients* to)
        : shape(of_tokens),
          places(of_parameters),
          main_gradients(to),
          states(columns.states.contiguous()),
          actions(columns.actions.contiguous()),
          rewards(columns.rewards.contiguous()),
          next_states(columns.next_states.contiguous()) {}

    TransitionArrays transitions() const {
      return {states.const_data_ptr<int32_t>(), actions.const_data_ptr<int32_t>(),
              rewards.const_data_ptr<float>(), next_states.const_data_ptr<int32_t>()};
    }

    TokenShape shape;
    EmbeddingPlaces places;
    MainGradients* main_gradients;
    at::Tensor states, actions, rewards, next_states;
    at::Tensor zeros;  ///< stands for parameters that the network does not have
  };
};

}  // namespace

at::Tensor fused_embedding(const TransitionColumns& transitions, const TokenShape& shape,
                           const EmbeddingParameters& parameters, MainGradients* main_gradients) {
  std::vector<at::Tensor> defined;
  for (const at::Tensor& parameter : {parameters.context_weight, parameters.context_bias, parameters.types,
                                      parameters.query_states, parameters.positions}) {
    if (parameter.defined()) defined.push_back(parameter);
  }
  TokenShape typed = shape;
  typed.type = type_of(defined.front());
  return FusedEmbedding::apply(at::TensorList(defined), transitions, typed,
                               EmbeddingPlaces::of(parameters.positions.defined()), main_gradients);
}

bool is_fused_embedding(const at::Tensor& x) {
  return dynamic_cast<autograd::CppNode<FusedEmbedding>*>(x.grad_fn().get()) != nullptr;
}

}  // namespace adtrain::kernels
