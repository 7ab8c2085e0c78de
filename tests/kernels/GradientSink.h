#pragma once

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

}  // namespace adtrain::testing
