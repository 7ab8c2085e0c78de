#include "data/reader/Attribute.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "data/reader/DatasetDescription.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr size_t kLongestText = 64 * 1024;

hssize_t count_of(const Hdf5Handle& attribute) {
  const Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
  return H5Sget_simple_extent_npoints(space.get());
}

/// A text of fixed or variable length; nothing where it is longer than an attribute may be.
std::optional<std::string> text_in(const Hdf5Handle& attribute, const Hdf5Handle& type) {
  if (H5Tis_variable_str(type.get()) > 0) {
    char* text = nullptr;
    if (H5Aread(attribute.get(), type.get(), static_cast<void*>(&text)) < 0 || text == nullptr)
      return std::nullopt;
    const char *const most = text + kLongestText, *const end = std::find<const char*>(text, most, '\0');
    std::optional<std::string> value;
    if (end != most) value = std::string(static_cast<const char*>(text), end);
    H5free_memory(text);
    return value;
  }
  const size_t length = H5Tget_size(type.get());
  std::string value(std::min(length, kLongestText), '\0');
  if (length > kLongestText || H5Aread(attribute.get(), type.get(), value.data()) < 0) return std::nullopt;
  value.resize(std::min(value.size(), value.find('\0')));
  return value;
}

/// As HDF5 converts what is stored; nothing where it cannot.
template <class Number>
std::optional<Number> number_in(const Hdf5Handle& attribute, hid_t memory_type) {
  Number number{};
  if (H5Aread(attribute.get(), memory_type, &number) < 0) return std::nullopt;
  return number;
}

template <class Number>
std::optional<std::string> text_of(const std::optional<Number>& number) {
  if (!number) return std::nullopt;
  return fmt::format("{}", *number);
}

}  // namespace

json attribute_value(const Hdf5Handle& attribute) {
  if (count_of(attribute) != 1) return {};
  const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
  const auto or_null = [](const auto& value) { return value ? json(*value) : json(); };
  switch (H5Tget_class(type.get())) {
    case H5T_STRING:
      return or_null(text_in(attribute, type));
    case H5T_INTEGER:
      return or_null(number_in<int64_t>(attribute, H5T_NATIVE_INT64));
    case H5T_FLOAT:
      return or_null(number_in<double>(attribute, H5T_NATIVE_DOUBLE));
    default:
      return {};
  }
}

std::optional<std::string> attribute_text(const Hdf5Handle& attribute) {
  if (count_of(attribute) != 1) return std::nullopt;
  const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
  switch (H5Tget_class(type.get())) {
    case H5T_STRING:
      return text_in(attribute, type);
    case H5T_INTEGER:
      return text_of(number_in<int64_t>(attribute, H5T_NATIVE_INT64));
    case H5T_FLOAT:
      // 0.99 of 32 bits is 0.99 as a float, and 0.9900000095 as a double.
      if (H5Tget_size(type.get()) <= sizeof(float))
        return text_of(number_in<float>(attribute, H5T_NATIVE_FLOAT));
      return text_of(number_in<double>(attribute, H5T_NATIVE_DOUBLE));
    case H5T_ENUM: {
      if (!is_boolean(type.get())) return std::nullopt;
      const std::optional<uint8_t> value = number_in<uint8_t>(attribute, type.get());
      if (!value) return std::nullopt;
      return *value != 0 ? "true" : "false";
    }
    default:
      return std::nullopt;
  }
}

std::string attribute_words(const Hdf5Handle& attribute) {
  const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
  const hssize_t count = count_of(attribute);
  return fmt::format("{} {}: {}", count, count == 1 ? "value" : "values", words_for_type(type.get()));
}

}  // namespace adtrain
