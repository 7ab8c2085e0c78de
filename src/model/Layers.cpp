#include "model/Layers.h"

#include <cmath>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/cpu/CpuElementwise.h"
#include "kernels/cpu/CpuRows.h"

namespace adtrain {
namespace {

namespace autograd = torch::autograd;

/// x Wᵀ + b. Its bias gradient, the sum over all rows, is computed as a product with ones: libtorch's own sum
/// over the rows of a 16-bit matrix reaches only a tenth of the GPU's memory bandwidth.
class LinearOnGpu : public autograd::Function<LinearOnGpu> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    context->save_for_backward({x, weight});
    return at::linear(x, weight, bias);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor gradient = gradients[0].reshape({-1, weight.size(0)});
    at::Tensor of_x;
    if (context->needs_input_grad(0)) of_x = at::mm(gradient, weight).view_as(x);
    return {of_x, at::mm(gradient.t(), x.reshape({-1, weight.size(1)})),
            at::mm(at::ones({1, gradient.size(0)}, gradient.options()), gradient).flatten()};
  }
};

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const {
  const bool half = x.is_cuda() && x.scalar_type() != at::kFloat;
  if (half && bias.defined() && bias.requires_grad()) return LinearOnGpu::apply(x, weight, bias);
  return at::linear(x, weight, bias);
}

at::Tensor Embedding::operator()(const at::Tensor& indices) const {
  return at::embedding(weight, indices);
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, kNormEpsilon);
}

at::Tensor RmsNorm::operator()(const at::Tensor& x, double dropout_rate) const {
  if (kernels::cpu_elementwise_fits(x))
    return kernels::rms_norm_on_cpu(x, weight, kNormEpsilon, dropout_rate);
  return at::rms_norm(kernels::dropout(x, dropout_rate), weight.sizes(), weight, kNormEpsilon);
}

at::Tensor silu_product(const at::Tensor& a, const at::Tensor& b) {
  if (kernels::cpu_elementwise_fits(a) && kernels::cpu_elementwise_fits(b))
    return kernels::silu_product_on_cpu(a, b);
  return at::silu(a) * b;
}

at::Tensor dropped_gelu(const Linear& linear, const at::Tensor& x, double rate) {
  if (kernels::cpu_rows_fit(x, linear.weight.size(0))) {
    return kernels::linear_gelu_on_cpu(x, linear.weight, linear.bias, rate);
  }
  return kernels::dropout(at::gelu(linear(x)), rate);
}

at::Tensor normed_sum(const LayerNorm& norm, const at::Tensor& residual, const Linear& linear,
                      const at::Tensor& x, double rate) {
  if (kernels::cpu_rows_fit(x, linear.weight.size(0))) {
    return kernels::linear_normed_sum_on_cpu(x, linear.weight, linear.bias, residual,
                                             {norm.weight, norm.bias, kNormEpsilon}, rate);
  }
  return norm(residual + kernels::dropout(linear(x), rate));
}

Linear default_linear(ParameterFactory& factory, const std::string& name, int64_t in, int64_t out,
                      bool with_bias) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(in));
  Linear linear;
  linear.weight = factory.uniform(name + ".weight", {out, in}, bound);
  if (with_bias) linear.bias = factory.uniform(name + ".bias", {out}, bound);
  return linear;
}

Linear normal_linear(ParameterFactory& factory, const std::string& name, int64_t in, int64_t out,
                     double deviation, bool with_bias) {
  Linear linear;
  linear.weight = factory.normal(name + ".weight", {out, in}, deviation);
  if (with_bias) linear.bias = factory.constant(name + ".bias", {out}, 0);
  return linear;
}

Embedding embedding(ParameterFactory& factory, const std::string& name, int64_t count, int64_t width,
                    double deviation) {
  return {factory.normal(name + ".weight", {count, width}, deviation)};
}

LayerNorm layer_norm(ParameterFactory& factory, const std::string& name, int64_t width) {
  LayerNorm norm;
  norm.weight = factory.constant(name + ".weight", {width}, 1);
  norm.bias = factory.constant(name + ".bias", {width}, 0);
  return norm;
}

RmsNorm rms_norm(ParameterFactory& factory, const std::string& name, int64_t width) {
  return {factory.constant(name + ".weight", {width}, 1)};
}

}  // namespace adtrain
