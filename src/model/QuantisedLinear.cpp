#include "model/QuantisedLinear.h"

#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kernels/quantised/OutlierProduct.h"
#include "kernels/quantised/Quantise.h"
#include "kernels/quantised/WeightProduct.h"

namespace adtrain {

QuantisedMatrix WeightQuantisation::quantised(const at::Tensor& weights) const {
  return code == QuantisedCode::int8 ? kernels::quantised_rows(weights)
                                     : kernels::quantised_4bit(weights, code, double_quantisation);
}

int64_t WeightQuantisation::bytes(int64_t out_features, int64_t in_features) const {
  return kernels::quantised_shape(code, double_quantisation, out_features, in_features).bytes();
}

std::string WeightQuantisation::name() const {
  if (code == QuantisedCode::int8)
    return outlier_threshold > 0 ? fmt::format("int8-outliers-{:g}", outlier_threshold) : "int8";
  return fmt::format("{}{}", code == QuantisedCode::nf4 ? "nf4" : "fp4",
                     double_quantisation ? "-double" : "");
}

at::Tensor QuantisedLinear::operator()(const at::Tensor& x, const at::Tensor& bias,
                                       const ProductOptions& options) const {
  const at::ScalarType type = how.compute_type.value_or(x.scalar_type());
  if (options.norm.weight.defined() && !is_weight_only(x.scalar_type())) {
    ProductOptions of_normed = options;
    of_normed.norm = {};
    return (*this)(kernels::normed_rows(x, options.norm), bias, of_normed);
  }
  const at::Tensor rows = x.reshape({-1, matrix->in_features}).to(type);
  ProductOptions of_rows = options;
  if (options.sum.defined()) of_rows.sum = options.sum.reshape({-1, matrix->out_features}).to(type);
  const at::Tensor y = how.outlier_threshold > 0
                           ? kernels::outlier_product(rows, *matrix, bias, how.outlier_threshold, of_rows)
                           : kernels::weight_product(rows, *matrix, bias, of_rows);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = matrix->out_features;
  return y.to(x.scalar_type()).view(sizes);
}

}  // namespace adtrain
