#include "kernels/loss/FusedLinearCrossEntropy.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/GradientAccumulation.h"
#include "kernels/MatrixOperation.h"
#include "kernels/loss/LinearCrossEntropy.h"

namespace adtrain::kernels {

namespace {

namespace autograd = torch::autograd;

class LinearCrossEntropyOperation : public autograd::Function<LinearCrossEntropyOperation> {
 public:
  static autograd::variable_list forward(autograd::AutogradContext* context,
                                         const at::Tensor& encoded_of_any_strides, at::TensorList head,
                                         const at::Tensor& actions, double label_smoothing,
                                         MainGradients* main_gradients) {
    const at::Tensor encoded = encoded_of_any_strides.contiguous(), taken = actions.contiguous();
    const c10::cuda::CUDAGuard guard(encoded.device());
    const LinearCrossEntropyShape shape = {.rows = encoded.size(0) * encoded.size(1),
                                           .queries = static_cast<int>(encoded.size(1)),
                                           .transitions = static_cast<int>(taken.size(1)),
                                           .width = static_cast<int>(encoded.size(2)),
                                           .actions = static_cast<int>(head[0].size(0)),
                                           .type = type_of(encoded)};
    const int parts = linear_cross_entropy_parts(shape);
    const std::vector<int64_t> parts_or_scalar =
        parts == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{parts};
    const auto on_gpu = at::TensorOptions(encoded.device());
    const at::Tensor losses = at::empty(parts_or_scalar, on_gpu.dtype(at::kFloat));
    const at::Tensor correct = at::empty(parts_or_scalar, on_gpu.dtype(at::kLong));
    const at::Tensor slopes =
        at::empty({shape.rows, LinearCrossEntropyShape::kMostActions}, losses.options());
    linear_cross_entropy(shape, values_of(encoded), {values_of(head[0]), values_of(head[1])},
                         taken.const_data_ptr<int32_t>(), static_cast<float>(label_smoothing),
                         slopes.data_ptr<float>(), {losses.data_ptr<float>(), correct.data_ptr<int64_t>()},
                         current_stream());

    context->save_for_backward(head.vec());
    context->saved_data["remembered"] =
        c10::IValue::make_capsule(c10::make_intrusive<Remembered>(shape, main_gradients, encoded, slopes));
    const at::Tensor sum = total_of(losses), right = total_of(correct);
    context->mark_non_differentiable({right});
    context->set_materialize_grads(false);  // zeros for `right` would take a kernel
    return {sum, right};
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto remembered = taken_from<Remembered>(context);
    const autograd::variable_list head = context->get_saved_variables();
    const auto& [shape, main_gradients, encoded, slopes] = remembered->values;
    const c10::cuda::CUDAGuard guard(encoded.device());
    const at::Tensor gradient = gradients[0].contiguous(), d_encoded = at::empty_like(encoded);
    GradientAccumulation place(head, main_gradients);
    const at::Tensor sums = place.of(0, head.size());
    const at::Tensor parts = parts_for(linear_cross_entropy_backward_parts(shape), sums);
    linear_cross_entropy_backward(shape, gradient.const_data_ptr<float>(), slopes.const_data_ptr<float>(),
                                  values_of(encoded), {values_of(head[0]), values_of(head[1])},
                                  values_of(d_encoded), parts.data_ptr<float>(), current_stream());
    add_up(parts, sums);
    const autograd::variable_list of_head = place.finish();
    return {d_encoded, of_head[0], of_head[1],
            {},        {},         {}};  // actions, smoothing and main gradients get no gradients
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    Remembered(const LinearCrossEntropyShape& shape, MainGradients* main_gradients, const at::Tensor& encoded,
               const at::Tensor& slopes)
        : values{shape, main_gradients, encoded.detach(), slopes} {}

    struct Values {
      LinearCrossEntropyShape shape;
      MainGradients* main_gradients;
      at::Tensor encoded, slopes;
    } values;
  };

  /// `parts`: a scalar where there is only one part.
  static at::Tensor total_of(const at::Tensor& parts) { return parts.dim() == 0 ? parts : parts.sum(); }
};

}  // namespace

LinearCrossEntropySum fused_linear_cross_entropy(const at::Tensor& encoded, const at::Tensor& actions,
                                                 const std::vector<at::Tensor>& head, double label_smoothing,
                                                 MainGradients* main_gradients) {
  const autograd::variable_list found = LinearCrossEntropyOperation::apply(
      encoded, at::TensorList(head), actions, label_smoothing, main_gradients);
  return {found[0], found[1]};
}

}  // namespace adtrain::kernels
