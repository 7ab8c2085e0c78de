#include "kernels/quantised/Quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/quantised/CodeMaps.h"

namespace adtrain::kernels {
namespace {

constexpr int64_t kBlock = 64, kNestedBlock = 256;
constexpr float kSmallestAbsmax = 1e-38F;  ///< by less nothing is divided

int64_t blocks_of(int64_t elements, int64_t block) {
  return (elements + block - 1) / block;
}

float absmax_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Finds the code of a value in [−1, 1].
class NearestCode {
 public:
  explicit NearestCode(QuantisedCode code) {
    const std::array<float, 16> values = code_values(code);
    std::iota(order_.begin(), order_.end(), uint8_t{0});
    // fp4 has two zeros: the first one is that of what is not above 0.
    std::ranges::stable_sort(order_, {}, [&](uint8_t i) { return values[i]; });
    for (size_t i = 0; i < bounds_.size(); ++i)
      bounds_[i] = (values[order_[i]] + values[order_[i + 1]]) / 2.0F;
  }

  uint8_t operator()(float value) const {
    unsigned above = 0;
    for (const float bound : bounds_) above += value > bound ? 1 : 0;
    return order_[above];
  }

 private:
  std::array<uint8_t, 16> order_{};  ///< codes by ascending value
  std::array<float, 15> bounds_{};
};

/// Codes each absmax less `offset` by the dynamic map. The value is rounded to one of 65 536 steps of [−1, 1]
/// first: that is how bitsandbytes looks codes up on a CPU.
class DynamicCodes {
 public:
  DynamicCodes() : map_(dynamic_map()), codes_(kSteps) {
    const float* const values = map_.const_data_ptr<float>();
    size_t code = 0;
    for (size_t step = 0; step < kSteps; ++step) {
      const double value = 2.0 * static_cast<double>(step) / (kSteps - 1) - 1.0;
      const auto is_nearer = [&](size_t next) {
        return std::abs(static_cast<double>(values[next]) - value) <
               std::abs(static_cast<double>(values[next - 1]) - value);
      };
      while (code + 1 < static_cast<size_t>(map_.numel()) && is_nearer(code + 1)) ++code;
      codes_[step] = static_cast<uint8_t>(code);
    }
  }

  const at::Tensor& map() const { return map_; }
  uint8_t operator()(float value) const {
    const float within = std::clamp(value, -1.0F, 1.0F);
    return codes_[static_cast<size_t>((within + 1.0F) * 0.5F * (kSteps - 1) + 0.5F)];
  }

 private:
  static constexpr int kSteps = 65536;
  at::Tensor map_;
  std::vector<uint8_t> codes_;
};

/// libtorch sums large tensors by as many threads as there are, and so to other last bits.
float mean_by_one_thread(const at::Tensor& values) {
  const int threads = at::get_num_threads();
  if (threads != 1) at::set_num_threads(1);
  const auto mean = values.mean().item<float>();
  if (threads != 1) at::set_num_threads(threads);
  return mean;
}

/// Puts codes of 8 bits in the place of absmax.
void quantise_absmax(QuantisedMatrix& matrix) {
  static const DynamicCodes kCodes;
  matrix.nested_offset = mean_by_one_thread(matrix.absmax);
  const at::Tensor differences = matrix.absmax - matrix.nested_offset;
  const int64_t count = differences.numel();
  const at::Tensor codes = at::empty({count}, at::kByte);
  matrix.nested_absmax = at::empty({blocks_of(count, kNestedBlock)}, at::kFloat);
  const float* const values = differences.const_data_ptr<float>();
  for (int64_t block = 0; block < matrix.nested_absmax.numel(); ++block) {
    const int64_t begin = block * kNestedBlock, end = std::min(count, begin + kNestedBlock);
    const float largest = absmax_of({values + begin, values + end});
    matrix.nested_absmax.data_ptr<float>()[block] = largest;
    for (int64_t i = begin; i < end; ++i)
      codes.data_ptr<uint8_t>()[i] = largest > 0 ? kCodes(values[i] * (1.0F / largest)) : uint8_t{0};
  }
  matrix.absmax = codes;
  matrix.nested_map = kCodes.map().clone();
}

QuantisedMatrix matrix_like(QuantisedCode code, int64_t out_features, int64_t in_features) {
  QuantisedMatrix matrix;
  matrix.code = code;
  matrix.out_features = out_features;
  matrix.in_features = in_features;
  matrix.block_size = kBlock;
  matrix.nested_block_size = kNestedBlock;
  return matrix;
}

}  // namespace

QuantisedMatrix quantised_4bit(const at::Tensor& weights, QuantisedCode code, bool double_quantisation) {
  const at::Tensor flat = weights.to(at::kFloat).contiguous().flatten();
  const float* const values = flat.const_data_ptr<float>();
  const int64_t count = flat.numel();
  QuantisedMatrix matrix = matrix_like(code, weights.size(0), weights.size(1));
  matrix.absmax = at::empty({blocks_of(count, kBlock)}, at::kFloat);
  matrix.codes = at::empty({(count + 1) / 2, 1}, at::kByte);
  float* const absmax = matrix.absmax.data_ptr<float>();
  uint8_t* const bytes = matrix.codes.data_ptr<uint8_t>();
  const NearestCode code_of(code);
  at::parallel_for(0, matrix.absmax.numel(), /*grain_size=*/256, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kBlock, end = std::min(count, begin + kBlock);
      const bool whole = end - begin == kBlock;
      const float largest = absmax_of({values + begin, values + end});
      const float divisor = std::max(largest, kSmallestAbsmax), factor = 1.0F / divisor;
      absmax[block] = whole ? largest : divisor;
      const auto scaled = [&](int64_t i) {  // an odd count is filled up with 0
        if (i >= end) return 0.0F;
        return std::clamp(whole ? values[i] * factor : values[i] / divisor, -1.0F, 1.0F);
      };
      for (int64_t i = begin; i < end; i += 2)
        bytes[i / 2] = static_cast<uint8_t>(code_of(scaled(i)) << 4 | code_of(scaled(i + 1)));
    }
  });
  const std::array<float, 16> map = code_values(code);
  matrix.code_map = at::tensor(at::ArrayRef<float>(map), at::kFloat);
  if (double_quantisation) quantise_absmax(matrix);
  return matrix;
}

at::Tensor factors_to_127(const at::Tensor& largest) {
  return (largest.reciprocal() * 127.0).masked_fill(largest.eq(0), 0);
}

QuantisedMatrix quantised_rows(const at::Tensor& weights) {
  const at::Tensor rounded = weights.to(at::kHalf).to(at::kFloat).contiguous();
  QuantisedMatrix matrix = matrix_like(QuantisedCode::int8, weights.size(0), weights.size(1));
  matrix.absmax = rounded.abs().amax(1);
  matrix.codes = at::round(rounded * factors_to_127(matrix.absmax).unsqueeze(1)).to(at::kChar);
  return matrix;
}

QuantisedMatrix quantised_shape(QuantisedCode code, bool double_quantisation, int64_t out_features,
                                int64_t in_features) {
  const at::TensorOptions shape_only = at::TensorOptions(at::kMeta);
  QuantisedMatrix matrix = matrix_like(code, out_features, in_features);
  if (code == QuantisedCode::int8) {
    matrix.codes = at::empty({out_features, in_features}, shape_only.dtype(at::kChar));
    matrix.absmax = at::empty({out_features}, shape_only.dtype(at::kFloat));
    return matrix;
  }
  const int64_t elements = out_features * in_features, blocks = blocks_of(elements, kBlock);
  matrix.codes = at::empty({(elements + 1) / 2, 1}, shape_only.dtype(at::kByte));
  matrix.absmax = at::empty({blocks}, shape_only.dtype(double_quantisation ? at::kByte : at::kFloat));
  matrix.code_map = at::empty({16}, shape_only.dtype(at::kFloat));
  if (!double_quantisation) return matrix;
  matrix.nested_absmax = at::empty({blocks_of(blocks, kNestedBlock)}, shape_only.dtype(at::kFloat));
  matrix.nested_map = at::empty({256}, shape_only.dtype(at::kFloat));
  return matrix;
}

}  // namespace adtrain::kernels
