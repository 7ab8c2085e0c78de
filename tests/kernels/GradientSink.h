#pragma once

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/FlatLayout.h"
#include "base/MainGradients.h"

namespace adtrain::testing {

/// Gradients of parameters that lie side by side, on top of ones.
class GradientSink : public MainGradients {
 public:
  explicit GradientSink(const std::vector<at::Tensor>& parameters)
      : parameters_(parameters), layout_(FlatLayout::of(parameters)) {
    flat = at::ones({layout_.total()}, parameters.front().options().dtype(at::kFloat).requires_grad(false));
  }

  at::Tensor place_of(at::TensorList parameters) override {
    EXPECT_EQ(parameters.size(), parameters_.size());
    return flat;
  }
  void added(at::TensorList parameters) override { told += parameters.size(); }

  at::Tensor gradient(size_t parameter) const {
    const at::Tensor& like = parameters_[parameter];
    return flat.narrow(0, layout_.offset(parameter), like.numel()).view(like.sizes()) - 1;
  }

  at::Tensor flat;
  size_t told = 0;

 private:
  std::vector<at::Tensor> parameters_;
  FlatLayout layout_;
};

/// An embedding of parameters in 16 bits, `embed(main gradients)`, is what `by_plain_operators` computes from
/// the same parameters in float64. So are its gradients, from autograd, and twice in main gradients, bit for
/// bit. `tolerance`: of what is rounded to the parameters' type, relative to the norm.
template <class Embed, class PlainOperators>
void expect_embedding_is_the_reference(Embed&& embed, PlainOperators&& by_plain_operators,
                                       const std::vector<at::Tensor>& parameters, double tolerance) {
  const auto error_of = [](const at::Tensor& found, const at::Tensor& expected) {
    return ((found.to(at::kDouble) - expected).norm() / expected.norm().clamp_min(1e-12)).item<double>();
  };
  std::vector<at::Tensor> exact;
  for (const at::Tensor& parameter : parameters)
    exact.push_back(parameter.detach().to(at::kDouble).set_requires_grad(true));
  const at::Tensor right = by_plain_operators(exact), x = embed(nullptr);
  ASSERT_EQ(x.sizes(), right.sizes());
  EXPECT_LT(error_of(x.detach(), right.detach()), tolerance);

  const at::Tensor dx = at::randn_like(x.detach());
  const auto of_right = torch::autograd::grad({right}, {exact.begin(), exact.end()}, {dx.to(at::kDouble)});
  const auto of_found = torch::autograd::grad({x}, {parameters.begin(), parameters.end()}, {dx});
  GradientSink main_gradients(parameters), again(parameters);
  for (GradientSink* each : {&main_gradients, &again}) embed(each).backward(dx);
  EXPECT_EQ(main_gradients.told, parameters.size());
  EXPECT_TRUE(at::equal(main_gradients.flat, again.flat)) << "not the same on repeat";
  for (size_t parameter = 0; parameter < parameters.size(); ++parameter) {
    EXPECT_LT(error_of(of_found[parameter], of_right[parameter]), tolerance) << parameter;
    EXPECT_LT(error_of(main_gradients.gradient(parameter), of_right[parameter]), 1e-4) << parameter;
    EXPECT_FALSE(parameters[parameter].grad().defined());
  }
}

}  // namespace adtrain::testing
