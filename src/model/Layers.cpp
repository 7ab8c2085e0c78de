#include "model/Layers.h"

#include <cmath>

#include <ATen/ATen.h>

#include "model/kernels/CpuElementwise.h"

namespace adtrain {
namespace {

constexpr double kNormEpsilon = 1e-5;

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return at::linear(x, weight, bias);
}

at::Tensor Embedding::operator()(const at::Tensor& indices) const {
  return at::embedding(weight, indices);
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, kNormEpsilon);
}

at::Tensor RmsNorm::operator()(const at::Tensor& x) const {
  if (kernels::cpu_elementwise_fits(x)) return kernels::rms_norm_on_cpu(x, weight, kNormEpsilon);
  return at::rms_norm(x, weight.sizes(), weight, kNormEpsilon);
}

at::Tensor silu_product(const at::Tensor& a, const at::Tensor& b) {
  if (kernels::cpu_elementwise_fits(a) && kernels::cpu_elementwise_fits(b))
    return kernels::silu_product_on_cpu(a, b);
  return at::silu(a) * b;
}

at::Tensor dropout(const at::Tensor& x, double rate) {
  return rate > 0 ? at::dropout(x, rate, /*train=*/true) : x;
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
                     double deviation) {
  Linear linear;
  linear.weight = factory.normal(name + ".weight", {out, in}, deviation);
  linear.bias = factory.constant(name + ".bias", {out}, 0);
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
