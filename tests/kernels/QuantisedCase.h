#pragma once

#include <string>

#include <ATen/ATen.h>

#include "kernels/quantised/QuantisedMatrix.h"

/// Random quantised matrices, and what they stand for.
namespace adtrain::testing {

enum class Quantised { kNf4, kFp4, kNestedNf4, kNestedFp4, kInt8 };

inline std::string name_of(Quantised kind) {
  switch (kind) {
    case Quantised::kNf4:
      return "nf4";
    case Quantised::kFp4:
      return "fp4";
    case Quantised::kNestedNf4:
      return "nf4_double";
    case Quantised::kNestedFp4:
      return "fp4_double";
    default:
      return "int8";
  }
}

/// With random codes. FP4's map is a random one, as kernels read it from the matrix.
inline QuantisedMatrix random_matrix(Quantised kind, int64_t out, int64_t in, at::Device device,
                                     int64_t block_size = 64) {
  const auto floats = at::device(device).dtype(at::kFloat);
  QuantisedMatrix matrix;
  matrix.out_features = out;
  matrix.in_features = in;
  if (kind == Quantised::kInt8) {
    matrix.code = QuantisedCode::int8;
    matrix.codes = at::randint(-127, 128, {out, in}, floats.dtype(at::kChar));
    matrix.absmax = at::rand({out}, floats).mul_(0.1).add_(0.02);
    return matrix;
  }
  const bool nf4 = kind == Quantised::kNf4 || kind == Quantised::kNestedNf4;
  matrix.code = nf4 ? QuantisedCode::nf4 : QuantisedCode::fp4;
  matrix.block_size = block_size;
  matrix.codes = at::randint(0, 256, {(out * in + 1) / 2, 1}, floats.dtype(at::kByte));
  matrix.code_map =
      nf4 ? at::tensor({-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
                        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
                        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0},
                       at::kFloat)
                .to(device)
          : at::randn({16}, floats);
  const int64_t blocks = (out * in + block_size - 1) / block_size;
  if (kind == Quantised::kNf4 || kind == Quantised::kFp4) {
    matrix.absmax = at::rand({blocks}, floats).mul_(0.1).add_(0.02);
    return matrix;
  }
  matrix.absmax = at::randint(0, 256, {blocks}, floats.dtype(at::kByte));
  matrix.nested_map = std::get<0>(at::rand({256}, floats).mul_(2).sub_(1).sort());
  matrix.nested_absmax =
      at::rand({(blocks + matrix.nested_block_size - 1) / matrix.nested_block_size}, floats)
          .mul_(0.03)
          .add_(0.01);
  matrix.nested_offset = 0.07f;
  return matrix;
}

/// The weights (out, in), by the definition in QuantisedMatrix: in fp32, each operation rounded, or in fp64.
inline at::Tensor plainly_dequantised(const QuantisedMatrix& matrix, at::ScalarType type = at::kDouble) {
  if (matrix.code == QuantisedCode::int8)
    // By a tensor, as libtorch multiplies with 1 / 127 on GPUs otherwise.
    return matrix.codes.to(type) *
           (matrix.absmax.to(type) / at::full({1}, 127, matrix.absmax.options().dtype(type))).unsqueeze(1);
  const at::Tensor bytes = matrix.codes.flatten().to(at::kLong);
  const int64_t elements = matrix.out_features * matrix.in_features;
  const auto repeated = [](const at::Tensor& of_blocks, int64_t size, int64_t count) {
    return of_blocks.repeat_interleave(size).narrow(0, 0, count);
  };
  const at::Tensor codes =
      at::stack({bytes.div(16, "floor"), bytes.remainder(16)}, 1).flatten().narrow(0, 0, elements);
  at::Tensor absmax = matrix.absmax.to(at::kLong);
  if (matrix.nested()) {
    absmax = matrix.nested_map.to(type).index({absmax}) *
                 repeated(matrix.nested_absmax.to(type), matrix.nested_block_size, absmax.numel()) +
             matrix.nested_offset;
  } else {
    absmax = matrix.absmax.to(type);
  }
  return (matrix.code_map.to(type).index({codes}) * repeated(absmax, matrix.block_size, elements))
      .view({matrix.out_features, matrix.in_features});
}

}  // namespace adtrain::testing
