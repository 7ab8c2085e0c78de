#include "kernels/quantised/QuantisedProduct.h"

#include <cstdint>
#include <limits>
#include <stdexcept>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include "kernels/MatrixOperation.h"
#include "kernels/gemm/Gemm.h"
#include "kernels/mlp/GeluLayer.h"
#include "kernels/norm/NormEpsilon.h"
#include "kernels/primitives/DeviceTraits.h"
#include "kernels/quantised/ManyRowsPlan.h"
#include "kernels/quantised/QuantisedKernels.h"
#include "kernels/quantised/QuantisedOperands.h"

namespace adtrain {
namespace {

using kernels::expect_operands;
using kernels::float_type;
using kernels::ProductPlan;
using kernels::ProductWay;
using kernels::QuantisedWeights;
using kernels::ReadMatrix;
using kernels::WeightForm;

at::Tensor dequantised(const QuantisedWeights& weights, const at::TensorOptions& options) {
  at::Tensor output = at::empty({weights.out_features, weights.in_features}, options.requires_grad(false));
  kernels::dequantise(weights, float_type(output.scalar_type()), output.data_ptr(),
                      kernels::current_stream());
  return output;
}

/// Whether a kernel of ours can compute this: kBlockColumns columns of a row have one scale.
bool fits(const QuantisedWeights& weights, const at::Tensor& input) {
  const bool scaled_alike =
      weights.form == WeightForm::kEightBits || int64_t{1} << weights.block_shift >= kernels::kBlockColumns;
  return input.scalar_type() != at::kFloat && scaled_alike &&
         weights.in_features % kernels::kBlockColumns == 0 &&
         weights.out_features * weights.in_features <= std::numeric_limits<int>::max();
}

bool fits(const ProductPlan& plan, const QuantisedWeights& weights, const at::Tensor& input) {
  if (plan.way == ProductWay::kLibrary) return true;
  if (!fits(weights, input) || input.size(0) == 0) return false;
  const auto traits = kernels::DeviceTraits::of(input.device());
  if (plan.way == ProductWay::kFewRows)
    return input.size(0) <= kernels::kMostFewRows && traits.runs_small_kernels();
  return traits.multiplies_by_warpgroups() && plan.splits >= 1 && plan.splits <= kernels::kMostSplits &&
         plan.splits <= weights.in_features / kernels::kBlockColumns;
}

ProductPlan chosen_plan(const QuantisedWeights& weights, const at::Tensor& input) {
  constexpr int64_t kMostManyRows = 1024;  // more were not measured
  const int64_t rows = input.size(0);
  ProductPlan plan = {ProductWay::kFewRows};
  if (rows > kernels::kMostFewRows) {
    plan = rows > kMostManyRows ? ProductPlan{ProductWay::kLibrary}
                                : kernels::many_rows_plan(weights, rows, kernels::processors());
  }
  return fits(plan, weights, input) ? plan : ProductPlan{ProductWay::kLibrary};
}

/// `dequantised`: the weights.
at::Tensor product_by_library(const at::Tensor& input, const at::Tensor& dequantised, const at::Tensor& bias,
                              const ProductOptions& options) {
  constexpr auto kNo = kernels::Autotuning::kNo;
  if (!options.gelu && options.sum.defined())
    return kernels::sum_with_product(options.sum, input, dequantised, bias, kNo);
  const bool own_gelu = options.gelu && bias.defined() && input.scalar_type() != at::kFloat &&
                        dequantised.size(0) % kernels::kVectorWidth == 0;
  at::Tensor y = own_gelu ? kernels::GeluLayer(input, dequantised, bias, /*kept=*/{}, kNo).y()
                          : kernels::product(input, dequantised, bias, kNo);
  if (options.gelu && !own_gelu) y = at::gelu(y);
  return options.sum.defined() ? y + options.sum : y;
}

/// Whether there is a norm that few_rows_product() can do behind the product.
bool norm_fits_few_rows(const ProductOptions& options, int64_t in_features) {
  const bool known = !options.norm.bias.defined() || options.norm_products.defined();
  return options.norm.weight.defined() && known && kernels::norms_few_rows(in_features);
}

kernels::RowNorm row_norm_of(const ProductOptions& options) {
  return {options.norm.weight.const_data_ptr(),
          options.norm.bias.defined() ? options.norm_products.const_data_ptr<float>() : nullptr,
          static_cast<float>(kNormEpsilon)};
}

at::Tensor product_by(const ProductPlan& plan, const QuantisedWeights& weights, const at::Tensor& unnormed,
                      const at::Tensor& bias, const ProductOptions& options) {
  const bool norms_itself =
      plan.way == ProductWay::kFewRows && norm_fits_few_rows(options, weights.in_features);
  const at::Tensor input = options.norm.weight.defined() && !norms_itself
                               ? kernels::normed_input(unnormed, options.norm, kNormEpsilon, /*kept=*/{}).y
                               : unnormed;
  if (plan.way == ProductWay::kLibrary)
    return product_by_library(input, dequantised(weights, input.options()), bias, options);
  const at::Tensor read_input = kernels::readable(input),
                   read_bias = bias.defined() ? bias.contiguous() : bias,
                   read_sum = options.sum.defined() ? kernels::readable(options.sum) : options.sum;
  at::Tensor output = at::empty({input.size(0), weights.out_features}, input.options().requires_grad(false));
  kernels::QuantisedProduct job = {.weights = weights,
                                   .type = kernels::type_of(input),
                                   .rows = static_cast<int>(input.size(0)),
                                   .processors = kernels::processors(),
                                   .input = read_input.const_data_ptr(),
                                   .norm = norms_itself ? row_norm_of(options) : kernels::RowNorm{},
                                   .bias = bias.defined() ? read_bias.const_data_ptr() : nullptr,
                                   .gelu = options.gelu,
                                   .sum = read_sum.defined() ? read_sum.const_data_ptr() : nullptr,
                                   .output = output.data_ptr()};
  if (plan.way == ProductWay::kFewRows) {
    kernels::few_rows_product(job, kernels::current_stream());
    return output;
  }
  kernels::many_rows_product(job, plan, kernels::current_stream());
  return output;
}

}  // namespace

at::Tensor quantised_linear(const at::Tensor& input, const QuantisedMatrix& matrix, const at::Tensor& bias,
                            const ProductOptions& options) {
  const ReadMatrix read(matrix);
  expect_operands(matrix, input, bias, options);
  const c10::cuda::CUDAGuard on_device(input.device());
  return product_by(chosen_plan(read.weights(), input), read.weights(), input, bias, options);
}

bool norms_behind_product(const at::Tensor& input, const QuantisedMatrix& matrix) {
  const ReadMatrix read(matrix);
  return chosen_plan(read.weights(), input).way == ProductWay::kFewRows &&
         kernels::norms_few_rows(matrix.in_features);
}

at::Tensor quantised_linear_by(const ProductPlan& plan, const at::Tensor& input,
                               const QuantisedMatrix& matrix, const at::Tensor& bias,
                               const ProductOptions& options) {
  const ReadMatrix read(matrix);
  expect_operands(matrix, input, bias, options);
  const c10::cuda::CUDAGuard on_device(input.device());
  if (!fits(plan, read.weights(), input)) {
    throw std::logic_error(fmt::format("A quantised matrix of {} x {} and {} rows do not fit this way.",
                                       matrix.out_features, matrix.in_features, input.size(0)));
  }
  return product_by(plan, read.weights(), input, bias, options);
}

at::Tensor dequantised_on_gpu(const QuantisedMatrix& matrix, at::ScalarType type) {
  const ReadMatrix read(matrix);
  const c10::cuda::CUDAGuard on_device(matrix.codes.device());
  return dequantised(read.weights(), matrix.codes.options().dtype(type));
}

}  // namespace adtrain
