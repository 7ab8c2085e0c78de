#include "kernels/quantised/QuantisedOperands.h"

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kernels/MatrixOperation.h"

namespace adtrain::kernels {
namespace {

void expect(bool holds, const std::string& fault) {
  if (!holds) throw std::logic_error("A quantised matrix " + fault);
}

void expect_tensor(const at::Tensor& tensor, const char* name, at::ScalarType type, int64_t count) {
  expect(tensor.defined(), fmt::format("has no {}.", name));
  expect(tensor.scalar_type() == type && tensor.numel() == count && tensor.is_contiguous(),
         fmt::format("has {} of {} elements of {}; expected are {} of {}, dense.", name, tensor.numel(),
                     c10::toString(tensor.scalar_type()), count, c10::toString(type)));
}

int block_shift(int64_t size) {
  constexpr int64_t kLeast = 32;
  expect(size >= kLeast && std::has_single_bit(static_cast<uint64_t>(size)),
         fmt::format("has blocks of {} elements; expected is a power of two, 32 or more.", size));
  return std::countr_zero(static_cast<uint64_t>(size));
}

}  // namespace

ReadMatrix::ReadMatrix(const QuantisedMatrix& matrix) : matrix_(matrix) {
  const int64_t elements = matrix.out_features * matrix.in_features;
  expect(matrix.out_features > 0 && matrix.in_features > 0,
         fmt::format("has {} x {} elements.", matrix.out_features, matrix.in_features));
  weights_.out_features = matrix.out_features;
  weights_.in_features = matrix.in_features;
  weights_.form = form_of(matrix);
  if (weights_.form == WeightForm::kEightBits) {
    expect_tensor(matrix.codes, "codes", at::kChar, elements);
    expect_tensor(matrix.absmax, "absmax", at::kFloat, matrix.out_features);
  } else {
    read_4_bits(elements);
  }
  codes_ = readable(matrix.codes);
  weights_.codes = codes_.const_data_ptr();
  weights_.absmax = matrix.absmax.const_data_ptr();
}

void ReadMatrix::read_4_bits(int64_t elements) {
  constexpr int64_t kCodes = 16, kNestedCodes = 256;
  weights_.block_shift = block_shift(matrix_.block_size);
  const auto blocks_of = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  const int64_t blocks = blocks_of(elements, matrix_.block_size);
  expect_tensor(matrix_.codes, "codes", at::kByte, blocks_of(elements, 2));
  expect_tensor(matrix_.absmax, "absmax", matrix_.nested() ? at::kByte : at::kFloat, blocks);
  expect_tensor(matrix_.code_map, "code map", at::kFloat, kCodes);
  weights_.code_map = matrix_.code_map.const_data_ptr<float>();
  if (!matrix_.nested()) return;
  weights_.nested_shift = block_shift(matrix_.nested_block_size);
  expect_tensor(matrix_.nested_absmax, "nested absmax", at::kFloat,
                blocks_of(blocks, matrix_.nested_block_size));
  expect_tensor(matrix_.nested_map, "nested map", at::kFloat, kNestedCodes);
  weights_.nested_absmax = matrix_.nested_absmax.const_data_ptr<float>();
  weights_.nested_map = matrix_.nested_map.const_data_ptr<float>();
  weights_.nested_offset = matrix_.nested_offset;
}

FloatType float_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return FloatType::kFloat;
    case at::kHalf:
      return FloatType::kHalf;
    case at::kBFloat16:
      return FloatType::kBFloat16;
    default:
      throw std::logic_error(
          fmt::format("A quantised matrix was to be multiplied in {}; expected is fp32, "
                      "fp16 or bf16.",
                      c10::toString(type)));
  }
}

void expect_operands(const QuantisedMatrix& matrix, const at::Tensor& input, const at::Tensor& bias,
                     const ProductOptions& options) {
  const at::Tensor &sum = options.sum, &known = options.norm_products;
  (void)float_type(input.scalar_type());
  if (input.dim() != 2 || input.size(1) != matrix.in_features || input.device() != matrix.codes.device()) {
    throw std::logic_error(
        fmt::format("A quantised matrix of {} x {} on {} was to be multiplied with an input "
                    "of {} dimensions, the last one {}, on {}.",
                    matrix.out_features, matrix.in_features, matrix.codes.device().str(), input.dim(),
                    input.size(-1), input.device().str()));
  }
  if (sum.defined() && (sum.sizes() != at::IntArrayRef({input.size(0), matrix.out_features}) ||
                        sum.scalar_type() != input.scalar_type())) {
    throw std::logic_error(
        fmt::format("A quantised matrix of {} x {}, with an input of {} rows of {}, was to be added to {} "
                    "elements of {}.",
                    matrix.out_features, matrix.in_features, input.size(0),
                    c10::toString(input.scalar_type()), sum.numel(), c10::toString(sum.scalar_type())));
  }
  if (known.defined()) expect_tensor(known, "products with a norm", at::kFloat, 2 * matrix.out_features);
  if (bias.defined() && (bias.numel() != matrix.out_features || bias.scalar_type() != input.scalar_type())) {
    throw std::logic_error(
        fmt::format("A quantised matrix of {} x {}, with an input of {}, has a bias of {} "
                    "elements of {}.",
                    matrix.out_features, matrix.in_features, c10::toString(input.scalar_type()), bias.numel(),
                    c10::toString(bias.scalar_type())));
  }
}

}  // namespace adtrain::kernels
