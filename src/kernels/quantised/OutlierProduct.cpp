#include "kernels/quantised/OutlierProduct.h"

#include <ATen/ATen.h>

#include "kernels/quantised/Dequantise.h"
#include "kernels/quantised/Quantise.h"

namespace adtrain::kernels {
namespace {

constexpr float kLargest = 127.0F;

/// fp32 sums of products of whole numbers of 8 bits, exact up to 2²⁴: a (rows, in), b (out, in).
at::Tensor exact_product(const at::Tensor& a, const at::Tensor& b) {
  // On CPUs libtorch multiplies bytes in any shape, but leaves the result of one column unwritten (2.11).
  if (a.is_cpu() && a.size(1) == 1) return a.to(at::kFloat) * b.to(at::kFloat).t();
  // On GPUs it multiplies bytes in some shapes alone, and doubles are fast there.
  if (a.is_cpu()) return at::_int_mm(a, b.t()).to(at::kFloat);
  return at::mm(a.to(at::kDouble), b.to(at::kDouble).t()).to(at::kFloat);
}

}  // namespace

at::Tensor outlier_product(const at::Tensor& x, const QuantisedMatrix& matrix, const at::Tensor& bias,
                           double threshold) {
  const at::Tensor rounded = x.to(at::kHalf), magnitudes = rounded.abs();
  const at::Tensor is_outlier = magnitudes.ge(threshold);
  const at::Tensor in_outlier_column = is_outlier.any(0);
  const at::Tensor statistic = magnitudes.masked_fill(is_outlier, 0).amax(1).to(at::kFloat);
  const at::Tensor codes = at::round(rounded.to(at::kFloat) * factors_to_127(statistic).unsqueeze(1))
                               .masked_fill(in_outlier_column, 0)
                               .to(at::kChar);
  const at::Tensor scales = statistic.unsqueeze(1) * matrix.absmax.unsqueeze(0);
  at::Tensor y = exact_product(codes, matrix.codes) * scales / (kLargest * kLargest);
  if (bias.defined()) y += bias;
  y = y.to(x.scalar_type());
  const at::Tensor columns = in_outlier_column.nonzero().flatten();
  if (columns.numel() == 0) return y;
  QuantisedMatrix of_columns = matrix;
  of_columns.in_features = columns.numel();
  of_columns.codes = matrix.codes.index_select(1, columns);
  return at::addmm(y, x.index_select(1, columns), dequantised(of_columns, x.scalar_type()).t());
}

}  // namespace adtrain::kernels
