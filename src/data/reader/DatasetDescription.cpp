#include "data/reader/DatasetDescription.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "base/ElementType.h"

namespace adtrain {
namespace {

using nlohmann::json;

/// IEEE 754's binary16, binary32 or binary64: a bfloat16 has two bytes too.
std::string real_name(hid_t type) {
  size_t sign = 0, exponent_at = 0, exponent = 0, mantissa_at = 0, mantissa = 0;
  if (H5Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa) < 0) return "";
  const size_t bytes = H5Tget_size(type);
  const bool ieee = (bytes == 2 && exponent == 5 && mantissa == 10 && H5Tget_ebias(type) == 15) ||
                    (bytes == 4 && exponent == 8 && mantissa == 23 && H5Tget_ebias(type) == 127) ||
                    (bytes == 8 && exponent == 11 && mantissa == 52 && H5Tget_ebias(type) == 1023);
  if (!ieee || mantissa_at != 0 || exponent_at != mantissa || sign != mantissa + exponent) return "";
  return fmt::format("float{}", 8 * bytes);
}

std::string type_name(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  if (is_boolean(type)) return "bool";
  if (kind == H5T_FLOAT) return real_name(type);
  const bool whole = kind == H5T_INTEGER && H5Tget_precision(type) == 8 * H5Tget_size(type);
  if (!whole) return "";
  const std::string name =
      fmt::format("{}int{}", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", 8 * H5Tget_size(type));
  return element_type_of(name) ? name : "";
}

std::vector<hsize_t> extents_of(const Hdf5Handle& dataset) {
  const Hdf5Handle space(H5Dget_space(dataset.get()), H5Sclose);
  std::vector<hsize_t> shape(static_cast<size_t>(std::max(0, H5Sget_simple_extent_ndims(space.get()))));
  H5Sget_simple_extent_dims(space.get(), shape.data(), nullptr);
  return shape;
}

json filters_of(const Hdf5Handle& creation) {
  json filters = json::array();
  const int count = H5Pget_nfilters(creation.get());
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, config = 0;
    size_t values = 0;
    std::array<char, 80> name{};
    const H5Z_filter_t id = H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &values, nullptr,
                                           name.size() - 1, name.data(), &config);
    filters.push_back({{"id", static_cast<int64_t>(id)}, {"name", name.data()}});
  }
  return filters;
}

std::string fill_of(const Hdf5Handle& creation, hid_t type) {
  constexpr size_t kLargest = 8;
  const size_t bytes = H5Tget_size(type);
  std::array<uint8_t, kLargest> value{};
  if (bytes > kLargest || H5Pget_fill_value(creation.get(), type, value.data()) < 0) return "";
  std::string digits;
  for (size_t i = 0; i < bytes; ++i) digits += fmt::format("{:02x}", value[i]);
  return digits;
}

/// The name under which the file of a group, data set or file was opened.
std::string file_name(hid_t object) {
  std::array<char, 4096> name{};
  return H5Fget_name(object, name.data(), name.size()) < 0 ? "" : name.data();
}

void add_storage(const Hdf5Handle& dataset, json& description) {
  const Hdf5Handle creation(H5Dget_create_plist(dataset.get()), H5Pclose);
  switch (H5Pget_layout(creation.get())) {
    case H5D_CHUNKED: {
      std::vector<hsize_t> chunk(description.at("shape").size());
      H5Pget_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
      description["storage"] = "chunked";
      description["chunk"] = chunk;
      description["filters"] = filters_of(creation);
      break;
    }
    case H5D_CONTIGUOUS: {
      const haddr_t address = H5Dget_offset(dataset.get());
      description["storage"] = H5Pget_external_count(creation.get()) > 0 ? "external" : "contiguous";
      description["address"] = address == HADDR_UNDEF ? json() : json(address);
      break;
    }
    default:
      description["storage"] = H5Pget_layout(creation.get()) == H5D_COMPACT ? "compact" : "virtual";
  }
}

}  // namespace

bool is_boolean(hid_t type) {
  if (H5Tget_class(type) != H5T_ENUM || H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2) return false;
  int8_t no = -1, yes = -1;
  return H5Tenum_valueof(type, "FALSE", &no) >= 0 && H5Tenum_valueof(type, "TRUE", &yes) >= 0 && no == 0 &&
         yes == 1;
}

std::string words_for_type(hid_t type) {
  constexpr std::array<const char*, 11> kClasses = {
      "integers",  "reals",      "times",        "texts",          "bit fields", "opaque bytes",
      "compounds", "references", "enumerations", "variable lists", "arrays"};
  const auto kind = static_cast<size_t>(H5Tget_class(type));
  return fmt::format("{} of {} bytes", kind < kClasses.size() ? kClasses[kind] : "values of an unknown class",
                     H5Tget_size(type));
}

json description_of(const Hdf5Handle& file, const std::string& name) {
  const Hdf5Handle dataset(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset.valid()) return {{"error", fmt::format("cannot be opened (HDF5 says: {})", hdf5_reason())}};
  const Hdf5Handle type(H5Dget_type(dataset.get()), H5Tclose);
  json description = {{"shape", extents_of(dataset)},
                      {"type", type_name(type.get())},
                      {"found", words_for_type(type.get())},
                      {"big_endian", H5Tget_order(type.get()) == H5T_ORDER_BE}};
  add_storage(dataset, description);
  const Hdf5Handle creation(H5Dget_create_plist(dataset.get()), H5Pclose);
  description["fill"] = fill_of(creation, type.get());
  // An external link leads into another file, whose addresses mean nothing in this one.
  if (file_name(dataset.get()) != file_name(file.get())) description["storage"] = "of another file";
  return description;
}

}  // namespace adtrain
