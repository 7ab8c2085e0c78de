#include "data/formats/Column.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace adtrain {
namespace {

template <class Value>
double value_at(const uint8_t* bytes) {
  Value value;
  std::memcpy(&value, bytes, sizeof value);
  return static_cast<double>(value);
}

/// IEEE 754's binary16.
double half_at(const uint8_t* bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1f) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  constexpr int kBias = 15, kMantissaBits = 10;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - kBias - kMantissaBits);
  return sign * std::ldexp(mantissa + (1 << kMantissaBits), exponent - kBias - kMantissaBits);
}

/// The place of the first value whose exponent bits are all set, or `count`.
template <class Bits>
size_t first_with_all_bits(const std::vector<uint8_t>& bytes, Bits exponent, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof bits, sizeof bits);
    if ((bits & exponent) == exponent) return i;
  }
  return count;
}

}  // namespace

const char* name_of(ColumnKind kind) {
  constexpr std::array<const char*, kColumnKinds> kNames = {
      "observations", "actions",     "rewards",      "next observations", "episode ends",
      "terminations", "truncations", "step numbers", "expert actions"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_one_number(ColumnKind kind) {
  return ColumnKinds{ColumnKind::kRewards, ColumnKind::kEnds, ColumnKind::kTerminations,
                     ColumnKind::kTruncations, ColumnKind::kStepNumbers}
      .contains(kind);
}

size_t ColumnType::row_bytes() const {
  size_t bytes = size_of(type);
  for (const int64_t extent : row) bytes *= static_cast<size_t>(extent);
  return bytes;
}

double Column::number(int64_t row, int64_t element) const {
  const size_t item = size_of(type.type);
  const uint8_t* const at =
      bytes.data() + static_cast<size_t>(row) * type.row_bytes() + static_cast<size_t>(element) * item;
  switch (type.type) {
    case ElementType::kBool:
    case ElementType::kUint8:
      return *at;
    case ElementType::kInt8:
      return value_at<int8_t>(at);
    case ElementType::kUint16:
      return value_at<uint16_t>(at);
    case ElementType::kInt16:
      return value_at<int16_t>(at);
    case ElementType::kUint32:
      return value_at<uint32_t>(at);
    case ElementType::kInt32:
      return value_at<int32_t>(at);
    case ElementType::kUint64:
      return value_at<uint64_t>(at);
    case ElementType::kInt64:
      return value_at<int64_t>(at);
    case ElementType::kFloat16:
      return half_at(at);
    case ElementType::kFloat32:
      return value_at<float>(at);
    case ElementType::kFloat64:
      break;
  }
  return value_at<double>(at);
}

std::optional<int64_t> Column::first_not_finite() const {
  if (is_whole(type.type)) return std::nullopt;
  const size_t item = size_of(type.type), count = bytes.size() / item;
  const size_t found = item == 2   ? first_with_all_bits<uint16_t>(bytes, 0x7c00, count)
                       : item == 4 ? first_with_all_bits<uint32_t>(bytes, 0x7f800000, count)
                                   : first_with_all_bits<uint64_t>(bytes, 0x7ff0000000000000, count);
  if (found == count) return std::nullopt;
  return static_cast<int64_t>(found * item / type.row_bytes());
}

const Column* HistoryWindow::find(ColumnKind kind) const {
  const auto found =
      std::ranges::find_if(columns, [kind](const Column& column) { return column.type.kind == kind; });
  return found == columns.end() ? nullptr : &*found;
}

}  // namespace adtrain
