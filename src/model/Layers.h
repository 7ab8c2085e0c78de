#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/TokenStreams.h"
#include "kernels/norm/NormEpsilon.h"
#include "model/ParameterFactory.h"
#include "model/QuantisedLinear.h"

namespace adtrain {

/// Handles of parameters with their arithmetic. Copies share the parameters.

/// y = x Wᵀ + b.
struct Linear {
  at::Tensor weight;  ///< (out, in)
  at::Tensor bias;    ///< (out), or undefined
  /// What it multiplies by once its network is quantised: `weight` has no values then. Null for a layer that
  /// never is.
  std::shared_ptr<QuantisedLinear> quantised = nullptr;

  at::Tensor operator()(const at::Tensor& x) const;
  bool is_quantised() const { return quantised && quantised->matrix; }
  /// The weight with its values, where it is quantised those that it stands for.
  at::Tensor values() const;
  /// Zeros in the place of y with its graph of autograd, for who reads gradients alone.
  at::Tensor without_values(const at::Tensor& x) const;
};

/// A row of `weight` (count, width) for each index.
struct Embedding {
  at::Tensor weight;

  at::Tensor operator()(const at::Tensor& indices) const;
};

/// Over the last dimension.
struct LayerNorm {
  at::Tensor weight;
  at::Tensor bias;

  at::Tensor operator()(const at::Tensor& x) const;
};

/// x · weight / √(mean(x²) + kNormEpsilon) over the last dimension.
struct RmsNorm {
  at::Tensor weight;

  /// Normalises x after dropout.
  at::Tensor operator()(const at::Tensor& x, double dropout_rate) const;
};

/// Those of the layers' weights and biases that are defined, in this order.
template <class... Layers>
std::vector<at::Tensor> parameters_of(const Layers&... layers) {
  std::vector<at::Tensor> parameters;
  const auto append = [&](const auto& layer) {
    if (layer.weight.defined()) parameters.push_back(layer.weight);
    if constexpr (requires { layer.bias; }) {
      if (layer.bias.defined()) parameters.push_back(layer.bias);
    }
  };
  (append(layers), ...);
  return parameters;
}

/// Rates of dropout in one forward pass; 0 in evaluation.
struct DropoutRates {
  double hidden = 0;
  double attention = 0;
};

/// silu(a) · b, the gate of SwiGLU.
at::Tensor silu_product(const at::Tensor& a, const at::Tensor& b);

/// dropout(gelu(linear(x))).
at::Tensor dropped_gelu(const Linear& linear, const at::Tensor& x, double rate);

/// norm(residual + dropout(linear(x))).
at::Tensor normed_sum(const LayerNorm& norm, const at::Tensor& residual, const Linear& linear,
                      const at::Tensor& x, double rate);

/// Initialised as torch.nn.Linear: weight and bias uniform in ±1/√in.
Linear default_linear(ParameterFactory& factory, const std::string& name, int64_t in, int64_t out,
                      bool with_bias = true);
/// Initialised as GPT-2: weight normal with this deviation, bias 0.
Linear normal_linear(ParameterFactory& factory, const std::string& name, int64_t in, int64_t out,
                     double deviation, bool with_bias = true);
/// Standard normal, as torch.nn.Embedding, unless another deviation is given.
Embedding embedding(ParameterFactory& factory, const std::string& name, int64_t count, int64_t width,
                    double deviation = 1.0);
LayerNorm layer_norm(ParameterFactory& factory, const std::string& name, int64_t width);
RmsNorm rms_norm(ParameterFactory& factory, const std::string& name, int64_t width);

}  // namespace adtrain
