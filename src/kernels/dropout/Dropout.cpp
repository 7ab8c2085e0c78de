#include "kernels/dropout/Dropout.h"

#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/DropoutDraw.h"
#include "kernels/cpu/CpuElementwise.h"
#include "kernels/dropout/RowDropout.h"
#include "kernels/primitives/KernelOperation.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

FloatType float_type_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kHalf:
      return FloatType::kHalf;
    case at::kBFloat16:
      return FloatType::kBFloat16;
    case at::kFloat:
      return FloatType::kFloat;
    default:
      throw std::logic_error(std::string("Dropout of ") + c10::toString(x.scalar_type()) + " on a GPU.");
  }
}

at::Tensor dropped(const at::Tensor& x_of_any_strides, double rate, const DropoutDraw& draw) {
  const c10::cuda::CUDAGuard on_device(x_of_any_strides.device());
  const at::Tensor x = x_of_any_strides.contiguous(), y = at::empty_like(x);
  const int64_t width = x.size(-1), rows = x.numel() / width;
  drop_rows(x.const_data_ptr(),
            {.rows = rows,
             .width = static_cast<int>(width),
             .rows_of_sequence = rows / draw.sequences.size(0),
             .type = float_type_of(x),
             .rate = DropoutRate(rate),
             .seed = draw.seed.const_data_ptr<int64_t>(),
             .place = draw.place,
             .sequences = draw.sequences.const_data_ptr<int64_t>()},
            y.data_ptr(), current_stream());
  return y;
}

class DropoutOnGpu : public autograd::Function<DropoutOnGpu> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, double rate) {
    auto remembered = c10::make_intrusive<Remembered>(rate, DropoutDraw::next(x.size(0), x.device()));
    at::Tensor y = dropped(x, rate, remembered->draw);
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(remembered));
    return y;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto remembered = taken_from<Remembered>(context);
    return {dropped(gradients[0], remembered->rate, remembered->draw), {}};
  }

 private:
  struct Remembered : torch::CustomClassHolder {
    Remembered(double of_call, DropoutDraw drawn) : rate(of_call), draw(std::move(drawn)) {}
    double rate;
    DropoutDraw draw;
  };
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double rate) {
  if (rate == 0) return x;
  return x.is_cuda() ? DropoutOnGpu::apply(x, rate) : dropout_on_cpu(x, rate);
}

}  // namespace adtrain::kernels
