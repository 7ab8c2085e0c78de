#include "kernels/GradientAccumulation.h"

#include <ATen/ATen.h>

namespace adtrain::kernels {

GradientAccumulation::GradientAccumulation(at::TensorList parameters, MainGradients* main_gradients)
    : parameters_(parameters.vec()), main_gradients_(main_gradients), layout_(FlatLayout::of(parameters)) {
  const auto fp32 = parameters_.front().options().dtype(at::kFloat).requires_grad(false);
  place_ = main_gradients_ != nullptr ? main_gradients_->place_of(parameters_)
                                      : at::zeros({layout_.total()}, fp32);
}

at::Tensor GradientAccumulation::of(size_t parameter) const {
  const at::Tensor& like = parameters_[parameter];
  return place_.narrow(0, layout_.offset(parameter), like.numel()).view(like.sizes());
}

at::Tensor GradientAccumulation::of(size_t parameter, size_t count) const {
  return place_.narrow(0, begin(parameter), begin(parameter + count) - begin(parameter));
}

std::vector<at::Tensor> GradientAccumulation::finish() {
  std::vector<at::Tensor> gradients(parameters_.size());
  if (main_gradients_ != nullptr) {
    main_gradients_->added(parameters_);
    return gradients;
  }
  for (size_t index = 0; index < gradients.size(); ++index) {
    gradients[index] = of(index).to(parameters_[index].scalar_type());
  }
  return gradients;
}

int64_t GradientAccumulation::begin(size_t parameter) const {
  return parameter == parameters_.size() ? layout_.total() : layout_.offset(parameter);
}

}  // namespace adtrain::kernels
