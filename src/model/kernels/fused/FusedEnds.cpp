#include "model/kernels/fused/FusedEnds.h"

#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/TokenType.h"
#include "model/kernels/GradientPlace.h"
#include "model/kernels/KernelOperation.h"
#include "model/kernels/fused/ActionLoss.h"
#include "model/kernels/fused/TokenEmbedding.h"
#include "model/kernels/gpu/DeviceSupport.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

constexpr int64_t kWidthStep = 32, kMostWidth = 1024;

TokenShape token_shape(const Batch& batch, const ModelShape& shape, LossPositions positions, int64_t width) {
  const auto length = static_cast<int>(batch.states.size(1));
  const bool all = positions == LossPositions::kAll;
  return {.sequences = static_cast<int>(batch.size()),
          .transitions = length,
          .context = all ? length : length - 1,
          .queries = all ? length : 1,
          .width = static_cast<int>(width),
          .actions = static_cast<int>(shape.num_actions),
          .grid_size = static_cast<int>(shape.grid_size)};
}

/// Where each parameter of the embedding stands in the list of those that the network has.
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
  static at::Tensor forward(autograd::AutogradContext* context, at::TensorList parameters, const Batch& batch,
                            const TokenShape& shape, const EmbeddingPlaces& places, GradientSink* sink) {
    const c10::cuda::CUDAGuard guard(parameters.front().device());
    auto remembered = c10::make_intrusive<Remembered>(batch, shape, places, sink);
    const auto like = parameters.front().options().requires_grad(false);
    at::Tensor x = at::empty({shape.sequences, shape.tokens(), shape.width}, like);
    at::Tensor zeros;  // for what the network does not have
    if (!places.positions) zeros = at::zeros({shape.transitions, shape.width}, like);
    embed_tokens(
        shape, remembered->transitions(),
        {values_of(parameters[places.context_weight]), values_of(parameters[places.context_bias]),
         places.types ? values_of(parameters[*places.types]) + offset_of_type(shape) : values_of(zeros),
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
    GradientPlace place(parameters, remembered->sink);
    const auto gradient_of = [&](size_t parameter) { return place.of(parameter).data_ptr<float>(); };
    const at::Tensor room = at::empty({embedding_partial_sums(shape)}, fp32);
    at::Tensor nowhere;  // for what the network does not have
    if (!places.positions) nowhere = at::zeros({shape.transitions + 1, shape.width}, fp32);
    embed_tokens_backward(
        shape, remembered->transitions(), values_of(dx), room.data_ptr<float>(),
        {gradient_of(places.context_weight), gradient_of(places.context_bias),
         places.types ? gradient_of(*places.types) + offset_of_type(shape) : nowhere[0].data_ptr<float>(),
         gradient_of(places.query_states),
         places.positions ? gradient_of(*places.positions) : nowhere[1].data_ptr<float>()},
        current_stream());
    autograd::variable_list result = place.finish();
    result.resize(result.size() + 4);  // batch, shape, places and sink have no gradients
    return result;
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    Remembered(const Batch& batch, const TokenShape& of_tokens, const EmbeddingPlaces& of_parameters,
               GradientSink* to)
        : shape(of_tokens),
          places(of_parameters),
          sink(to),
          states(batch.states.contiguous()),
          actions(batch.actions.contiguous()),
          rewards(batch.rewards.contiguous()),
          next_states(batch.next_states.contiguous()) {}

    TransitionArrays transitions() const {
      return {states.const_data_ptr<int32_t>(), actions.const_data_ptr<int32_t>(),
              rewards.const_data_ptr<float>(), next_states.const_data_ptr<int32_t>()};
    }

    TokenShape shape;
    EmbeddingPlaces places;
    GradientSink* sink;
    at::Tensor states, actions, rewards, next_states;
  };

  static int64_t offset_of_type(const TokenShape& shape) { return int64_t{kTransition} * shape.width; }
};

class FusedActionLoss : public autograd::Function<FusedActionLoss> {
 public:
  static autograd::variable_list forward(autograd::AutogradContext* context,
                                         const at::Tensor& encoded_of_any_strides, at::TensorList head,
                                         const at::Tensor& actions, double label_smoothing,
                                         GradientSink* sink) {
    const at::Tensor encoded = encoded_of_any_strides.contiguous(), taken = actions.contiguous();
    const c10::cuda::CUDAGuard guard(encoded.device());
    const ActionLossShape shape = {.rows = encoded.size(0) * encoded.size(1),
                                   .queries = static_cast<int>(encoded.size(1)),
                                   .transitions = static_cast<int>(taken.size(1)),
                                   .width = static_cast<int>(encoded.size(2)),
                                   .actions = static_cast<int>(head[0].size(0))};
    const int parts = action_loss_parts(shape);
    const std::vector<int64_t> parts_or_scalar =
        parts == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{parts};
    const auto on_gpu = at::TensorOptions(encoded.device());
    const at::Tensor losses = at::empty(parts_or_scalar, on_gpu.dtype(at::kFloat));
    const at::Tensor correct = at::empty(parts_or_scalar, on_gpu.dtype(at::kLong));
    const at::Tensor slopes = at::empty({shape.rows, ActionLossShape::kMostActions}, losses.options());
    action_loss(shape, values_of(encoded), {values_of(head[0]), values_of(head[1])},
                taken.const_data_ptr<int32_t>(), static_cast<float>(label_smoothing),
                slopes.data_ptr<float>(), {losses.data_ptr<float>(), correct.data_ptr<int64_t>()},
                current_stream());

    context->save_for_backward(head.vec());
    context->saved_data["remembered"] =
        c10::IValue::make_capsule(c10::make_intrusive<Remembered>(shape, sink, encoded, slopes));
    const at::Tensor sum = total_of(losses), right = total_of(correct);
    context->mark_non_differentiable({right});
    return {sum, right};
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto remembered = taken_from<Remembered>(context);
    const autograd::variable_list head = context->get_saved_variables();
    const auto& [shape, sink, encoded, slopes] = remembered->values;
    const c10::cuda::CUDAGuard guard(encoded.device());
    const at::Tensor gradient = gradients[0].contiguous(), d_encoded = at::empty_like(encoded);
    GradientPlace place(head, sink);
    const at::Tensor sums = place.of(0, head.size());
    const at::Tensor parts = parts_for(action_loss_backward_parts(shape), sums);
    action_loss_backward(shape, gradient.const_data_ptr<float>(), slopes.const_data_ptr<float>(),
                         values_of(encoded), {values_of(head[0]), values_of(head[1])}, values_of(d_encoded),
                         parts.data_ptr<float>(), current_stream());
    add_up(parts, sums);
    const autograd::variable_list of_head = place.finish();
    return {d_encoded, of_head[0], of_head[1], {}, {}, {}};  // actions, smoothing and sink have no gradients
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    Remembered(const ActionLossShape& shape, GradientSink* sink, const at::Tensor& encoded,
               const at::Tensor& slopes)
        : values{shape, sink, encoded.detach(), slopes} {}

    struct Values {
      ActionLossShape shape;
      GradientSink* sink;
      at::Tensor encoded, slopes;
    } values;
  };

  /// `parts`: a scalar where there is only one.
  static at::Tensor total_of(const at::Tensor& parts) { return parts.dim() == 0 ? parts : parts.sum(); }
};

}  // namespace

bool fused_ends_fit(const at::Device& device, at::ScalarType type, int64_t width, const ModelShape& shape) {
  return runs_fused_ends(device) && type == at::kBFloat16 && width % kWidthStep == 0 && width <= kMostWidth &&
         shape.num_actions <= ActionLossShape::kMostActions && shape.num_actions <= TokenShape::kMostActions;
}

at::Tensor fused_embedding(const Batch& batch, const ModelShape& shape, LossPositions positions,
                           const EmbeddingParameters& parameters, GradientSink* sink) {
  const TokenShape of_tokens = token_shape(batch, shape, positions, parameters.context_weight.size(0));
  std::vector<at::Tensor> defined;
  for (const at::Tensor& parameter : {parameters.context_weight, parameters.context_bias, parameters.types,
                                      parameters.query_states, parameters.positions}) {
    if (parameter.defined()) defined.push_back(parameter);
  }
  return FusedEmbedding::apply(at::TensorList(defined), batch, of_tokens,
                               EmbeddingPlaces::of(parameters.positions.defined()), sink);
}

FusedLoss fused_loss(const at::Tensor& encoded, const at::Tensor& actions,
                     const std::vector<at::Tensor>& head, double label_smoothing, GradientSink* sink) {
  const autograd::variable_list found =
      FusedActionLoss::apply(encoded, at::TensorList(head), actions, label_smoothing, sink);
  return {found[0], found[1]};
}

}  // namespace adtrain::kernels
