#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/primitives/DeviceTraits.h"
#include "kernels/quantised/ProductOptions.h"
#include "kernels/quantised/QuantisedMatrix.h"

namespace adtrain::kernels {

/// LLM.int8's product (Dettmers et al., 2022, arXiv:2208.07339) x Wᵀ + bias of rows x [rows, in_features] and
/// a matrix of 8 bits. Rows are rounded to fp16, and then, by row, to 8 bits; whole numbers are multiplied
/// exactly. Columns of x with an element of magnitude `threshold` or more are multiplied apart, by weights in
/// x's type. `bias` may be undefined. Of the options GELU and the sum, but no norm. Returns x's type. On any
/// device; see has_outlier_kernels().
at::Tensor outlier_product(const at::Tensor& x, const QuantisedMatrix& matrix, const at::Tensor& bias,
                           double threshold, const ProductOptions& options = {});

/// The same by libtorch's operators: the reference. The host waits for the columns.
at::Tensor outlier_product_by_operators(const at::Tensor& x, const QuantisedMatrix& matrix,
                                        const at::Tensor& bias, double threshold,
                                        const ProductOptions& options = {});

/// How whole numbers are multiplied where our kernels do the rest.
enum class WholeProduct {
  kFewRows,  ///< outlier_product_of_few_rows()
  kTiles,    ///< outlier_product_by_tiles()
  kLibrary,  ///< cuBLASLt, or where a shape is no multiple of 8 products of doubles
};

/// The same by kernels in a certain way, for tests and benchmarks. A way that does not fit the operands or
/// the GPU is a std::logic_error.
at::Tensor outlier_product_by(WholeProduct way, const at::Tensor& x, const QuantisedMatrix& matrix,
                              const at::Tensor& bias, double threshold, const ProductOptions& options = {});

/// Whether kernels of ours compute outlier_product(), but for products of whole numbers of some shapes. It
/// returns at once then, and may be captured in CUDA graphs.
bool has_outlier_kernels(const DeviceTraits& device, at::ScalarType type);

/// The most bytes that it takes meanwhile, beside x, the matrix, the result and the weights of outliers'
/// columns. By arithmetic; a GPU's products of a shape that is no multiple of 8 take more.
int64_t outlier_product_bytes(const DeviceTraits& device, at::ScalarType type, int64_t rows,
                              int64_t in_features, int64_t out_features);

}  // namespace adtrain::kernels
