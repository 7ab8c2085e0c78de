#include "kernels/quantised/OutlierProduct.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "kernels/quantised/Dequantise.h"
#include "kernels/quantised/Quantise.h"

namespace adtrain::kernels {
namespace {

constexpr float kLargest = 127.0F;
/// So many rows are multiplied at once: enough for a GPU, and few enough that what they take meanwhile is
/// small beside a batch.
constexpr int64_t kRowsAtOnce = 4096;

/// fp32 sums of products of whole numbers of 8 bits, exact up to 2²⁴: a (rows, in), b (out, in).
at::Tensor exact_product(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kFewestRows = 32, kMultiple = 8;
  // On CPUs libtorch multiplies bytes in any shape, but leaves the result of one column unwritten (2.11).
  if (a.is_cpu() && a.size(1) == 1) return a.to(at::kFloat) * b.to(at::kFloat).t();
  if (a.is_cpu()) return at::_int_mm(a, b.t()).to(at::kFloat);
  // On GPUs it takes 17 rows and more, and multiples of 8 of both others. Doubles are exact, too.
  if (a.size(1) % kMultiple != 0 || b.size(0) % kMultiple != 0)
    return at::mm(a.to(at::kDouble), b.to(at::kDouble).t()).to(at::kFloat);
  const int64_t rows = a.size(0), missing = kFewestRows - rows;
  if (missing <= 0) return at::_int_mm(a, b.t()).to(at::kFloat);
  return at::_int_mm(at::constant_pad_nd(a, {0, 0, 0, missing}), b.t()).narrow(0, 0, rows).to(at::kFloat);
}

/// Of each row, among what is no outlier, in fp32.
at::Tensor largest_magnitudes(const at::Tensor& halves, double threshold) {
  const at::Tensor magnitudes = halves.abs();
  return magnitudes.masked_fill(magnitudes.ge(threshold), 0).amax(1).to(at::kFloat);
}

/// Rows of 8 bits, and the largest magnitude of each that is no outlier.
struct RoundedRows {
  at::Tensor codes, statistic;
};

/// `left_out`: the columns that are multiplied apart, which have codes of 0.
RoundedRows rounded(const at::Tensor& x, const at::Tensor& left_out, double threshold) {
  const at::Tensor halves = x.to(at::kHalf), statistic = largest_magnitudes(halves, threshold);
  at::Tensor codes = halves.to(at::kFloat);
  codes.mul_(factors_to_127(statistic).unsqueeze(1)).round_().masked_fill_(left_out, 0);
  return {codes.to(at::kChar), statistic};
}

/// In fp32.
at::Tensor product(const RoundedRows& rows, const QuantisedMatrix& matrix) {
  at::Tensor y = exact_product(rows.codes, matrix.codes);
  const at::Tensor scales = rows.statistic.unsqueeze(1) * matrix.absmax.unsqueeze(0);
  return y.mul_(scales).div_(kLargest * kLargest);
}

}  // namespace

at::Tensor outlier_product(const at::Tensor& x, const QuantisedMatrix& matrix, const at::Tensor& bias,
                           double threshold) {
  at::Tensor left_out = at::zeros({x.size(1)}, x.options().dtype(at::kBool));
  for (const at::Tensor& rows : x.split(kRowsAtOnce))
    left_out.logical_or_(rows.to(at::kHalf).abs().ge(threshold).any(0));
  const at::Tensor columns = left_out.nonzero().flatten();
  at::Tensor weights;  // of those columns
  if (columns.numel() > 0) {
    QuantisedMatrix of_columns = matrix;
    of_columns.in_features = columns.numel();
    of_columns.codes = matrix.codes.index_select(1, columns);
    weights = dequantised(of_columns, x.scalar_type());
  }

  at::Tensor y = at::empty({x.size(0), matrix.out_features}, x.options());
  for (int64_t first = 0; first < x.size(0); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, x.size(0) - first);
    const at::Tensor rows = x.narrow(0, first, count);
    at::Tensor sums = product(rounded(rows, left_out, threshold), matrix);
    if (bias.defined()) sums += bias;
    at::Tensor of_rows = y.narrow(0, first, count);
    of_rows.copy_(sums);
    if (weights.defined()) of_rows.addmm_(rows.index_select(1, columns), weights.t());
  }
  return y;
}

int64_t outlier_product_bytes(int64_t rows, int64_t in_features, int64_t out_features) {
  // Of an element of x: in fp16, in fp32 and in 8 bits. Of one of the product: a whole number, or the scale,
  // and its sum.
  constexpr int64_t kRounding = 2 + 4 + 1, kCode = 1, kProduct = 4 + 4;
  return std::min(rows, kRowsAtOnce) *
         std::max(kRounding * in_features, kCode * in_features + kProduct * out_features);
}

}  // namespace adtrain::kernels
