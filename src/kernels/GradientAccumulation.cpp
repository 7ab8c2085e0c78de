#include "kernels/GradientAccumulation.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace adtrain::kernels {
namespace {

bool trains(const at::Tensor& parameter) {
  return parameter.requires_grad();
}

}  // namespace

GradientAccumulation::GradientAccumulation(at::TensorList parameters, MainGradients* main_gradients)
    : parameters_(parameters.vec()),
      main_gradients_(main_gradients),
      in_place_(main_gradients != nullptr && std::ranges::all_of(parameters_, trains)),
      layout_(FlatLayout::of(parameters)) {
  const auto fp32 = parameters_.front().options().dtype(at::kFloat).requires_grad(false);
  place_ = in_place_ ? main_gradients_->place_of(parameters_) : at::zeros({layout_.total()}, fp32);
  addend_ = !in_place_ || main_gradients_->are_zero(parameters_) ? Addend::kZero : Addend::kSums;
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
  if (in_place_) {
    main_gradients_->added(parameters_);
  } else if (main_gradients_ != nullptr) {
    pass_on();
  } else {
    for (size_t index = 0; index < gradients.size(); ++index) {
      if (trains(parameters_[index])) gradients[index] = of(index).to(parameters_[index].scalar_type());
    }
  }
  return gradients;
}

void GradientAccumulation::pass_on() const {
  size_t end = parameters_.size();
  while (end > 0) {
    size_t first = end;
    while (first > 0 && trains(parameters_[first - 1])) --first;
    if (first == end) {  // of a frozen one
      --end;
      continue;
    }
    const at::TensorList neighbours = at::TensorList(parameters_).slice(first, end - first);
    main_gradients_->place_of(neighbours).add_(of(first, end - first));
    main_gradients_->added(neighbours);
    end = first;
  }
}

int64_t GradientAccumulation::begin(size_t parameter) const {
  return parameter == parameters_.size() ? layout_.total() : layout_.offset(parameter);
}

}  // namespace adtrain::kernels
