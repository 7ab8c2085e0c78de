#include "kernels/embedding/FusedStepEmbedding.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/GradientAccumulation.h"
#include "kernels/MatrixOperation.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

enum Parameter : size_t { kStates, kActions, kRewardWeight, kRewardBias, kPositions };

class FusedStepEmbedding : public autograd::Function<FusedStepEmbedding> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, at::TensorList parameters,
                            const StepColumns& columns, const StepShape& shape,
                            MainGradients* main_gradients) {
    const c10::cuda::CUDAGuard guard(parameters.front().device());
    auto remembered = c10::make_intrusive<Remembered>(columns, shape, main_gradients);
    at::Tensor x = at::empty({shape.sequences, shape.tokens(), shape.width},
                             parameters.front().options().requires_grad(false));
    embed_steps(shape, remembered->steps(),
                {values_of(parameters[kStates]), values_of(parameters[kActions]),
                 values_of(parameters[kRewardWeight]), values_of(parameters[kRewardBias]),
                 values_of(parameters[kPositions])},
                values_of(x), current_stream());
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(remembered));
    return x;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto remembered = taken_from<Remembered>(context);
    const autograd::variable_list parameters = context->get_saved_variables();
    const StepShape& shape = remembered->shape;
    const c10::cuda::CUDAGuard guard(gradients[0].device());
    const at::Tensor dx = gradients[0].contiguous();
    GradientAccumulation place(parameters, remembered->main_gradients);
    const at::Tensor of_tables = place.of(kStates, kPositions),
                     of_positions = place.of(kPositions).narrow(0, 0, shape.tokens());
    // What lies between tables gets zeros.
    const at::Tensor table_parts =
        at::zeros({StepGradientParts::table_parts(shape), of_tables.numel()}, of_tables.options());
    const at::Tensor position_parts = parts_for(StepGradientParts::position_parts(shape), of_positions);
    const auto offset_of = [&](Parameter parameter) {
      return place.of(parameter).storage_offset() - of_tables.storage_offset();
    };
    embed_steps_backward(
        shape, remembered->steps(), values_of(dx),
        {position_parts.data_ptr<float>(), table_parts.data_ptr<float>(), of_tables.numel(),
         offset_of(kStates), offset_of(kActions), offset_of(kRewardWeight), offset_of(kRewardBias)},
        current_stream());
    add_up(table_parts, of_tables);
    add_up(position_parts, of_positions);
    autograd::variable_list result = place.finish();
    result.resize(result.size() + 3);  // columns, shape and main gradients get no gradients
    return result;
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    Remembered(const StepColumns& columns, const StepShape& of_steps, MainGradients* to)
        : shape(of_steps),
          main_gradients(to),
          states(columns.states.contiguous()),
          actions(columns.actions.contiguous()),
          rewards(columns.rewards.contiguous()) {}

    StepArrays steps() const {
      return {states.const_data_ptr<int32_t>(), actions.const_data_ptr<int32_t>(),
              rewards.const_data_ptr<float>(), static_cast<int>(actions.size(1))};
    }

    StepShape shape;
    MainGradients* main_gradients;
    at::Tensor states, actions, rewards;
  };
};

}  // namespace

at::Tensor fused_step_embedding(const StepColumns& steps, int64_t grid_size, const StepParameters& parameters,
                                MainGradients* main_gradients) {
  const StepShape shape = {.sequences = static_cast<int>(steps.states.size(0)),
                           .states = static_cast<int>(steps.states.size(1)),
                           .width = static_cast<int>(parameters.states.size(1)),
                           .actions = static_cast<int>(parameters.actions.size(0)),
                           .grid_size = static_cast<int>(grid_size),
                           .type = type_of(parameters.states)};
  TORCH_CHECK(shape.tokens() <= parameters.positions.size(0), "found ", shape.tokens(),
              " tokens; expected at most ", parameters.positions.size(0), ", which have positions");
  TORCH_CHECK(steps.actions.size(1) >= shape.states - 1 && steps.actions.sizes() == steps.rewards.sizes(),
              "found actions ", steps.actions.sizes(), " and rewards ", steps.rewards.sizes(), " between ",
              shape.states, " states of a row");
  return FusedStepEmbedding::apply(
      at::TensorList({parameters.states, parameters.actions, parameters.reward_weight, parameters.reward_bias,
                      parameters.positions}),
      steps, shape, main_gradients);
}

}  // namespace adtrain::kernels
