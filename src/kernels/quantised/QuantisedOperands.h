#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "kernels/primitives/FloatType.h"
#include "kernels/quantised/ProductOptions.h"
#include "kernels/quantised/QuantisedKernels.h"
#include "kernels/quantised/QuantisedMatrix.h"

/// Tensors as the kernels of products with quantised weights read them. What does not fit is a
/// std::logic_error that says what was found.
namespace adtrain::kernels {

/// How kernels read the matrix.
inline WeightForm form_of(const QuantisedMatrix& matrix) {
  if (matrix.code == QuantisedCode::int8) return WeightForm::kEightBits;
  return matrix.nested() ? WeightForm::kNestedFourBits : WeightForm::kFourBits;
}

/// A matrix as kernels read it. It owns what they read, for the call.
class ReadMatrix {
 public:
  /// Borrows the matrix.
  explicit ReadMatrix(const QuantisedMatrix& matrix);

  const QuantisedWeights& weights() const { return weights_; }
  /// Of the matrix's shape, aligned to 16 bytes.
  const at::Tensor& codes() const { return codes_; }

 private:
  void read_4_bits(int64_t elements);

  const QuantisedMatrix& matrix_;
  at::Tensor codes_;
  QuantisedWeights weights_ = {};
};

/// Of fp32, fp16 and bf16.
FloatType float_type(at::ScalarType type);

/// Compares the operands of a product, which are on one device.
void expect_operands(const QuantisedMatrix& matrix, const at::Tensor& input, const at::Tensor& bias,
                     const ProductOptions& options);

}  // namespace adtrain::kernels
