#include "data/TensorType.h"

#include <ATen/ops/empty.h>

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

at::ScalarType tensor_type(ElementType type) {
  switch (type) {
    case ElementType::kBool:
      return at::kByte;
    case ElementType::kUint16:
      return at::kInt;
    case ElementType::kUint32:
    case ElementType::kUint64:
      return at::kLong;
    default:
      return scalar_type_of(type);
  }
}

at::Tensor empty_rows(const ColumnType& column, std::vector<int64_t> leading, at::Device device) {
  leading.insert(leading.end(), column.row.begin(), column.row.end());
  return at::empty(leading, at::TensorOptions(device).dtype(tensor_type(column.type)));
}

}  // namespace adtrain
