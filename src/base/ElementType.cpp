#include "base/ElementType.h"

#include <algorithm>
#include <array>

namespace adtrain {
namespace {

struct Row {
  ElementType type;
  const char* name;
  size_t bytes;
};
constexpr std::array kRows = {
    Row{ElementType::kBool, "bool", 1},       Row{ElementType::kUint8, "uint8", 1},
    Row{ElementType::kInt8, "int8", 1},       Row{ElementType::kUint16, "uint16", 2},
    Row{ElementType::kInt16, "int16", 2},     Row{ElementType::kUint32, "uint32", 4},
    Row{ElementType::kInt32, "int32", 4},     Row{ElementType::kUint64, "uint64", 8},
    Row{ElementType::kInt64, "int64", 8},     Row{ElementType::kFloat16, "float16", 2},
    Row{ElementType::kFloat32, "float32", 4}, Row{ElementType::kFloat64, "float64", 8},
};

const Row& row_of(ElementType type) {
  return *std::ranges::find(kRows, type, &Row::type);
}

}  // namespace

const char* name_of(ElementType type) {
  return row_of(type).name;
}

std::optional<ElementType> element_type_of(std::string_view name) {
  const auto* const row = std::ranges::find(kRows, name, &Row::name);
  if (row == kRows.end()) return std::nullopt;
  return row->type;
}

std::vector<std::string> element_type_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

size_t size_of(ElementType type) {
  return row_of(type).bytes;
}

bool is_whole(ElementType type) {
  return type < ElementType::kFloat16;
}

}  // namespace adtrain
