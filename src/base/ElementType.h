#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adtrain {

/// The type of an array's numbers, as NumPy names them.
enum class ElementType : uint8_t {
  kBool,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64,
};

/// NumPy's name: "float32".
const char* name_of(ElementType type);
/// The type of that name; nothing where it is none of them.
std::optional<ElementType> element_type_of(std::string_view name);
std::vector<std::string> element_type_names();
/// In bytes.
size_t size_of(ElementType type);
/// Whether its numbers are whole; so are truth values.
bool is_whole(ElementType type);

}  // namespace adtrain
