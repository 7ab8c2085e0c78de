#include "kernels/quantised/OutlierProduct.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include "base/Cuda.h"
#include "kernels/MatrixOperation.h"
#include "kernels/quantised/Dequantise.h"
#include "kernels/quantised/OutlierKernels.h"
#include "kernels/quantised/Quantise.h"
#include "kernels/quantised/QuantisedOperands.h"

namespace adtrain::kernels {
namespace {

constexpr float kLargest = 127.0F;
/// So many rows are multiplied at once: enough for a GPU, and few enough that what they take meanwhile is
/// small beside a batch.
constexpr int64_t kRowsAtOnce = 4096;

constexpr int64_t kFewestRows = 32;  ///< of a GPU's product of bytes, which takes 17 and more

/// Sums of products of whole numbers of 8 bits as 32 bits, (rows, out): a (rows, in), b (out, in).
at::Tensor whole_product(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kMultiple = 8;
  // On CPUs libtorch multiplies bytes in any shape, but leaves the result of one column unwritten (2.11).
  if (a.is_cpu() && a.size(1) == 1) return a.to(at::kInt) * b.to(at::kInt).t();
  if (a.is_cpu()) return at::_int_mm(a, b.t());
  // On GPUs it takes multiples of 8 of both others. Doubles are exact, too.
  if (a.size(1) % kMultiple != 0 || b.size(0) % kMultiple != 0)
    return at::mm(a.to(at::kDouble), b.to(at::kDouble).t()).to(at::kInt);
  const int64_t rows = a.size(0), missing = kFewestRows - rows;
  if (missing <= 0) return at::_int_mm(a, b.t());
  return at::_int_mm(at::constant_pad_nd(a, {0, 0, 0, missing}), b.t()).narrow(0, 0, rows);
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
  at::Tensor y = whole_product(rows.codes, matrix.codes).to(at::kFloat);
  const at::Tensor scales = rows.statistic.unsqueeze(1) * matrix.absmax.unsqueeze(0);
  return y.mul_(scales).div_(kLargest * kLargest);
}

/// Of fp16: what a magnitude of fp16 must have, compared as its bits are.
uint16_t threshold_bits(double threshold) {
  return c10::Half(static_cast<float>(threshold)).x;
}

constexpr int64_t kFewestTiles = 64;

/// A product, without its numbers.
struct Shape {
  int64_t rows, in_features, out_features;

  static Shape of(const at::Tensor& x, const QuantisedMatrix& matrix) {
    return {x.size(0), matrix.in_features, matrix.out_features};
  }
  bool fits(WholeProduct way, const DeviceTraits& device) const {
    constexpr int64_t kInStep = 16, kOutStep = 8;
    if (way == WholeProduct::kLibrary) return true;
    if (in_features % kInStep != 0) return false;
    if (way == WholeProduct::kFewRows) return rows <= kMostRowsTogether;
    return device.multiplies_by_warpgroups() && out_features % kOutStep == 0;
  }
  /// Where there are few tiles the library, whose tiles are smaller, takes less.
  WholeProduct fastest(const DeviceTraits& device) const {
    if (fits(WholeProduct::kFewRows, device)) return WholeProduct::kFewRows;
    const bool many =
        gpu::divided_up(rows, kOutlierTileRows) * gpu::divided_up(out_features, kOutlierTileFeatures) >=
        kFewestTiles;
    return many && fits(WholeProduct::kTiles, device) ? WholeProduct::kTiles : WholeProduct::kLibrary;
  }
};

/// `x`: dense, on a GPU, in 16 bits.
at::Tensor product_by_kernels(WholeProduct way, const at::Tensor& x, const QuantisedMatrix& matrix,
                              const at::Tensor& bias, double threshold, const ProductOptions& options) {
  const c10::cuda::CUDAGuard on_device(x.device());
  const cudaStream_t stream = current_stream();
  const at::TensorOptions of_x = x.options().requires_grad(false);
  const at::Tensor bias_of_type = bias.defined() ? bias.to(x.scalar_type()).contiguous() : bias,
                   sum = options.sum.defined() ? readable(options.sum) : options.sum;
  const ReadMatrix read(matrix);
  expect_operands(matrix, x, bias_of_type, options);
  const at::Tensor y = at::empty({x.size(0), matrix.out_features}, of_x),
                   largest = at::empty({x.size(0)}, of_x.dtype(at::kFloat)),
                   list = at::empty({1 + x.size(1)}, of_x.dtype(at::kInt));
  const OutlierColumns apart = {list.data_ptr<int>(), list.data_ptr<int>() + 1};
  QuantisedProduct product = {};
  product.weights = read.weights();
  product.type = type_of(x);
  product.bias = bias.defined() ? bias_of_type.const_data_ptr() : nullptr;
  product.gelu = options.gelu;
  const auto rows_of = [&](const at::Tensor& some) {
    return OutlierRows{product.type, static_cast<int>(some.size(0)), static_cast<int>(some.size(1)),
                       some.const_data_ptr(), threshold_bits(threshold)};
  };

  const bool at_once = x.size(0) <= kMostRowsAtOnce && x.numel() <= kMostElementsAtOnce;
  at::Tensor outliers;
  if (!at_once) {
    constexpr int64_t kStep = 16;
    outliers = at::zeros({gpu::divided_up(x.size(1), kStep) * kStep}, of_x.dtype(at::kByte));
    find_outliers(rows_of(x), outliers.data_ptr<uint8_t>(), largest.data_ptr<float>(), stream);
  }
  for (int64_t first = 0; first < x.size(0); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, x.size(0) - first);
    const auto these = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
    const at::Tensor rows = these(x), largest_of_rows = these(largest), output = these(y);
    // Rows that the library takes beside are what they are: nobody reads their sums.
    const at::Tensor codes = at::empty({std::max(count, kFewestRows), x.size(1)}, of_x.dtype(at::kChar));
    if (at_once) {
      find_and_round(rows_of(rows), largest.data_ptr<float>(), codes.data_ptr<int8_t>(), apart, stream);
    } else {
      round_rows(rows_of(rows), outliers.const_data_ptr<uint8_t>(), largest_of_rows.const_data_ptr<float>(),
                 codes.data_ptr<int8_t>(), apart, stream);
    }
    product.rows = static_cast<int>(count);
    product.input = rows.const_data_ptr();
    product.sum = sum.defined() ? these(sum).const_data_ptr() : nullptr;
    product.output = output.data_ptr();
    const OutlierProduct job = {product, largest_of_rows.const_data_ptr<float>(), apart};
    switch (way) {
      case WholeProduct::kFewRows:
        outlier_product_of_few_rows(job, codes.const_data_ptr<int8_t>(), stream);
        break;
      case WholeProduct::kTiles:
        outlier_product_by_tiles(job, codes.const_data_ptr<int8_t>(), stream);
        break;
      case WholeProduct::kLibrary:
        finish_outlier_product(job, whole_product(codes, read.codes()).const_data_ptr<int32_t>(), stream);
        break;
    }
  }
  return y;
}

}  // namespace

bool has_outlier_kernels(const DeviceTraits& device, at::ScalarType type) {
  return device.runs_small_kernels() && type != at::kFloat;
}

at::Tensor outlier_product(const at::Tensor& x, const QuantisedMatrix& matrix, const at::Tensor& bias,
                           double threshold, const ProductOptions& options) {
  const DeviceTraits device = DeviceTraits::of(x.device());
  if (x.size(0) == 0 || !has_outlier_kernels(device, x.scalar_type()))
    return outlier_product_by_operators(x, matrix, bias, threshold, options);
  const WholeProduct way = Shape::of(x, matrix).fastest(device);
  return product_by_kernels(way, readable(x), matrix, bias, threshold, options);
}

at::Tensor outlier_product_by(WholeProduct way, const at::Tensor& x, const QuantisedMatrix& matrix,
                              const at::Tensor& bias, double threshold, const ProductOptions& options) {
  const DeviceTraits device = DeviceTraits::of(x.device());
  if (!has_outlier_kernels(device, x.scalar_type()) || !Shape::of(x, matrix).fits(way, device)) {
    throw std::logic_error(fmt::format("A quantised matrix of {} x {} and {} rows of {} do not fit this way.",
                                       matrix.out_features, matrix.in_features, x.size(0),
                                       c10::toString(x.scalar_type())));
  }
  return product_by_kernels(way, readable(x), matrix, bias, threshold, options);
}

at::Tensor outlier_product_by_operators(const at::Tensor& x, const QuantisedMatrix& matrix,
                                        const at::Tensor& bias, double threshold,
                                        const ProductOptions& options) {
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
  if (options.gelu) y = at::gelu(y);
  return options.sum.defined() ? y + options.sum : y;
}

int64_t outlier_product_bytes(const DeviceTraits& device, at::ScalarType type, int64_t rows,
                              int64_t in_features, int64_t out_features) {
  constexpr int64_t kCode = 1, kSum = 4;
  if (has_outlier_kernels(device, type)) {
    // Fewer rows may be multiplied by the library.
    constexpr int64_t kMostSums = (kFewestTiles - 1) * kOutlierTileRows * kOutlierTileFeatures;
    const int64_t at_once = std::clamp(rows, kFewestRows, kRowsAtOnce), sums = at_once * out_features;
    const bool by_tiles = Shape{rows, in_features, out_features}.fastest(device) == WholeProduct::kTiles;
    return kCode * at_once * in_features + kSum * (by_tiles ? std::min(sums, kMostSums) : sums);
  }
  // Of an element of x: in fp16, in fp32 and in 8 bits. Of one of the product: a whole number, or the scale,
  // and its sum.
  constexpr int64_t kRounding = 2 + 4 + kCode, kProduct = 2 * kSum;
  return std::min(rows, kRowsAtOnce) *
         std::max(kRounding * in_features, kCode * in_features + kProduct * out_features);
}

}  // namespace adtrain::kernels
