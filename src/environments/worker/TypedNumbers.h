#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/ElementType.h"

namespace adtrain {

/// A number of 16 bits as NumPy's float16 keeps it (IEEE 754 binary16).
struct Half {
  uint16_t bits;

  explicit operator double() const {
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
    return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
  }
};

/// Calls `use` with a null pointer to the C++ type of these numbers, and returns what it returns.
template <class Use>
auto with_type(ElementType type, Use use) {
  switch (type) {
    case ElementType::kBool:
    case ElementType::kUint8:
      return use(static_cast<uint8_t*>(nullptr));
    case ElementType::kInt8:
      return use(static_cast<int8_t*>(nullptr));
    case ElementType::kUint16:
      return use(static_cast<uint16_t*>(nullptr));
    case ElementType::kInt16:
      return use(static_cast<int16_t*>(nullptr));
    case ElementType::kUint32:
      return use(static_cast<uint32_t*>(nullptr));
    case ElementType::kInt32:
      return use(static_cast<int32_t*>(nullptr));
    case ElementType::kUint64:
      return use(static_cast<uint64_t*>(nullptr));
    case ElementType::kInt64:
      return use(static_cast<int64_t*>(nullptr));
    case ElementType::kFloat16:
      return use(static_cast<Half*>(nullptr));
    case ElementType::kFloat32:
      return use(static_cast<float*>(nullptr));
    case ElementType::kFloat64:
      break;
  }
  return use(static_cast<double*>(nullptr));
}

/// The `index`-th number from `bytes` on.
template <class Number>
Number number_at(const std::byte* bytes, size_t index) {
  Number number;
  std::memcpy(&number, bytes + index * sizeof(Number), sizeof(Number));
  return number;
}

}  // namespace adtrain
