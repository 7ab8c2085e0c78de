#include "evaluation/spaces/SpaceRows.h"

#include <vector>

#include <ATen/ATen.h>

namespace adtrain {

at::ScalarType scalar_type_of(ElementType type) {
  switch (type) {
    case ElementType::kBool:
      return at::kBool;
    case ElementType::kUint8:
      return at::kByte;
    case ElementType::kInt8:
      return at::kChar;
    case ElementType::kUint16:
      return at::kUInt16;
    case ElementType::kInt16:
      return at::kShort;
    case ElementType::kUint32:
      return at::kUInt32;
    case ElementType::kInt32:
      return at::kInt;
    case ElementType::kUint64:
      return at::kUInt64;
    case ElementType::kInt64:
      return at::kLong;
    case ElementType::kFloat16:
      return at::kHalf;
    case ElementType::kFloat32:
      return at::kFloat;
    case ElementType::kFloat64:
      break;
  }
  return at::kDouble;
}

at::Tensor rows_of(std::span<const std::byte> bytes, const Space& space, int64_t n) {
  std::vector<int64_t> shape = {n};
  shape.insert(shape.end(), space.shape.begin(), space.shape.end());
  return at::from_blob(const_cast<std::byte*>(bytes.data()), shape,
                       at::TensorOptions(scalar_type_of(space.type)));
}

at::Tensor as_trained(const at::Tensor& observations, const TaskSpaces& trained) {
  const bool is_unpacked =
      !trained.packed_digits.empty() && observations.dim() > 1 + std::ssize(trained.observation.shape);
  if (!is_unpacked) return observations;
  at::Tensor number = at::zeros(observations.sizes().slice(0, observations.dim() - 1), at::kLong);
  for (size_t digit = 0; digit < trained.packed_digits.size(); ++digit) {
    number = number * trained.packed_digits[digit] +
             observations.select(-1, static_cast<int64_t>(digit)).to(at::kLong);
  }
  return number;
}

}  // namespace adtrain
