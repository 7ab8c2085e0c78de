#include "model/Layers.h"

#include <cmath>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/cpu/CpuElementwise.h"
#include "kernels/cpu/CpuRows.h"
#include "kernels/dropout/Dropout.h"
#include "kernels/quantised/Dequantise.h"

namespace adtrain {
namespace {

namespace autograd = torch::autograd;

/// Whether the bias gradient, the sum over all rows, is computed as a product with ones: libtorch's own sum
/// over the rows of a 16-bit matrix reaches only a tenth of the GPU's memory bandwidth.
bool sums_by_product(const at::Tensor& gradient) {
  return gradient.is_cuda() && gradient.scalar_type() != at::kFloat;
}

/// The gradients of x, weight and, where there is one, bias, as libtorch's own at::linear gives them but for
/// sums_by_product.
autograd::variable_list linear_backward(autograd::AutogradContext* context,
                                        const at::Tensor& gradient_of_any_shape, bool biased) {
  const autograd::variable_list saved = context->get_saved_variables();
  const at::Tensor &x = saved[0], &weight = saved[1];
  const at::Tensor gradient = gradient_of_any_shape.reshape({-1, weight.size(0)});
  at::Tensor of_x;
  if (context->needs_input_grad(0)) of_x = at::mm(gradient, weight).view_as(x);
  autograd::variable_list result = {of_x, at::mm(gradient.t(), x.reshape({-1, weight.size(1)}))};
  if (biased) {
    result.push_back(sums_by_product(gradient)
                         ? at::mm(at::ones({1, gradient.size(0)}, gradient.options()), gradient).flatten()
                         : gradient.sum(0));
  }
  return result;
}

/// The same with columns of zeros up to a multiple of 16 bytes. Libraries' products of other rows take
/// several times as long, as their loads are narrow.
at::Tensor with_aligned_columns(const at::Tensor& x) {
  constexpr int64_t kAlignment = 16;
  const int64_t of_a_load = kAlignment / x.element_size(), beyond = x.size(-1) % of_a_load;
  return beyond == 0 ? x : at::constant_pad_nd(x, {0, of_a_load - beyond});
}

/// x Wᵀ + b.
class LinearOnGpu : public autograd::Function<LinearOnGpu> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    const at::Tensor aligned_x = with_aligned_columns(x), aligned_weight = with_aligned_columns(weight);
    context->save_for_backward({aligned_x, aligned_weight});
    context->saved_data["columns"] = weight.size(1);
    return at::linear(aligned_x, aligned_weight, bias);
  }
  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    autograd::variable_list result = linear_backward(context, gradients[0], /*biased=*/true);
    const int64_t columns = context->saved_data["columns"].toInt();
    for (size_t operand = 0; operand < 2; ++operand) {
      if (result[operand].defined()) result[operand] = result[operand].narrow(-1, 0, columns);
    }
    return result;
  }
};

/// Zeros in the place of x Wᵀ + b.
class LinearWithoutValues : public autograd::Function<LinearWithoutValues> {
 public:
  /// `parameters`: weight and, where there is one, bias.
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            at::TensorList parameters) {
    context->save_for_backward({x, parameters[0]});
    context->saved_data["biased"] = parameters.size() > 1;
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = parameters[0].size(0);
    return at::zeros(sizes, x.options().requires_grad(false));
  }
  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    return linear_backward(context, gradients[0], context->saved_data["biased"].toBool());
  }
};

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const {
  if (is_quantised()) return (*quantised)(x, bias);
  if (sums_by_product(x) && bias.defined() && bias.requires_grad())
    return LinearOnGpu::apply(x, weight, bias);
  return at::linear(x, weight, bias);
}

at::Tensor Linear::values() const {
  return is_quantised() ? kernels::dequantised(*quantised->matrix, weight.scalar_type()) : weight;
}

at::Tensor Linear::without_values(const at::Tensor& x) const {
  const std::vector<at::Tensor> parameters = parameters_of(*this);
  return LinearWithoutValues::apply(x, at::TensorList(parameters));
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
  if (!linear.is_quantised() && kernels::cpu_rows_fit(x, linear.weight.size(0))) {
    return kernels::linear_gelu_on_cpu(x, linear.weight, linear.bias, rate);
  }
  return kernels::dropout(at::gelu(linear(x)), rate);
}

at::Tensor normed_sum(const LayerNorm& norm, const at::Tensor& residual, const Linear& linear,
                      const at::Tensor& x, double rate) {
  if (!linear.is_quantised() && kernels::cpu_rows_fit(x, linear.weight.size(0))) {
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
  linear.quantised = factory.linear_weight(name + ".weight");
  if (with_bias) linear.bias = factory.uniform(name + ".bias", {out}, bound);
  return linear;
}

Linear normal_linear(ParameterFactory& factory, const std::string& name, int64_t in, int64_t out,
                     double deviation, bool with_bias) {
  Linear linear;
  linear.weight = factory.normal(name + ".weight", {out, in}, deviation);
  linear.quantised = factory.linear_weight(name + ".weight");
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
