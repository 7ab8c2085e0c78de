#include "kernels/quantised/Dequantise.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "kernels/quantised/QuantisedProduct.h"

namespace adtrain::kernels {
namespace {

template <class Value>
void write_values(const QuantisedMatrix& matrix, const at::Tensor& absmax, Value* to) {
  const int64_t count = matrix.out_features * matrix.in_features, block = matrix.block_size;
  const uint8_t* const bytes = matrix.codes.const_data_ptr<uint8_t>();
  const float* const map = matrix.code_map.const_data_ptr<float>();
  const float* const of_blocks = absmax.const_data_ptr<float>();
  at::parallel_for(0, absmax.numel(), /*grain_size=*/512, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      std::array<Value, 16> values;
      std::transform(map, map + values.size(), values.begin(),
                     [&](float code) { return static_cast<Value>(code * of_blocks[i]); });
      const int64_t end = std::min(count, (i + 1) * block);
      for (int64_t element = i * block; element < end; element += 2) {
        const uint8_t pair = bytes[element / 2];
        to[element] = values[pair >> 4];
        if (element + 1 < end) to[element + 1] = values[pair & 15];
      }
    }
  });
}

}  // namespace

at::Tensor absmax_values(const QuantisedMatrix& matrix) {
  if (!matrix.nested()) return matrix.absmax;
  const at::Tensor factors =
      matrix.nested_absmax.repeat_interleave(matrix.nested_block_size).narrow(0, 0, matrix.absmax.numel());
  return matrix.nested_map.index_select(0, matrix.absmax.to(at::kInt)) * factors + matrix.nested_offset;
}

at::Tensor dequantised(const QuantisedMatrix& matrix, at::ScalarType type) {
  if (!matrix.codes.is_cpu()) return dequantised_on_gpu(matrix, type);
  const std::array<int64_t, 2> shape = {matrix.out_features, matrix.in_features};
  if (matrix.code == QuantisedCode::int8) {
    constexpr double kPart = 1.0 / 127.0;
    return (matrix.codes.to(at::kFloat) * matrix.absmax.unsqueeze(1)).mul_(kPart).to(type);
  }
  const at::Tensor absmax = absmax_values(matrix);
  const at::Tensor weights = at::empty(shape, type);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "dequantised",
                                  [&] { write_values(matrix, absmax, weights.data_ptr<scalar_t>()); });
  return weights;
}

}  // namespace adtrain::kernels
