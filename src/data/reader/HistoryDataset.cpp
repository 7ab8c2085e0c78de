#include "data/reader/HistoryDataset.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "base/Checksum.h"
#include "base/Error.h"
#include "base/Text.h"
#include "data/Hdf5.h"

namespace adtrain {
namespace {

hsize_t count_of(const std::vector<hsize_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), hsize_t{1}, std::multiplies<>());
}

/// The leading `part` of an array of shape `whole`; all dimensions but the first two are equal.
template <class Value>
void keep_leading(std::vector<Value>& values, const std::vector<hsize_t>& whole,
                  const std::vector<hsize_t>& part) {
  const size_t coordinates = whole.size() > 2 ? whole[2] : 1;
  const size_t row = whole[1] * coordinates, kept = part[1] * coordinates;
  if (row != kept) {
    for (size_t step = 0; step < part[0]; ++step) {
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(step * row), kept,
                  values.begin() + static_cast<std::ptrdiff_t>(step * kept));
    }
  }
  values.resize(part[0] * kept);
}

}  // namespace

std::string shape_text(const std::vector<hsize_t>& shape) {
  std::vector<std::string> parts;
  for (const hsize_t size : shape) parts.push_back(std::to_string(size));
  return fmt::format("({})", join(parts, ", "));
}

HistoryDataset::HistoryDataset(const std::filesystem::path& path, const Hdf5Handle& file,
                               const std::string& name)
    : place_(fmt::format("{}: data set {}", path.string(), name)),
      file_bytes_(std::filesystem::file_size(path)),
      dataset_(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), H5Dclose),
      type_(dataset_.valid() ? H5Dget_type(dataset_.get()) : -1, H5Tclose) {
  if (!dataset_.valid()) {
    const std::string reason = hdf5_reason();  // read now, as the next call clears it
    const bool there = H5Lexists(file.get(), name.c_str(), H5P_DEFAULT) > 0;
    fail(there
             ? fmt::format("cannot be opened (HDF5 says: {}); the file is damaged; fetch or collect it again",
                           reason)
             : "is missing; expected states, actions, rewards, next_states and dones in every group");
  }
  const Hdf5Handle space(H5Dget_space(dataset_.get()), H5Sclose);
  shape_.resize(static_cast<size_t>(std::max(0, H5Sget_simple_extent_ndims(space.get()))));
  H5Sget_simple_extent_dims(space.get(), shape_.data(), nullptr);
  refuse_more_than_the_file_can_hold();
}

void HistoryDataset::fail(const std::string& what) const {
  throw DataError(place_ + " " + what);
}

void HistoryDataset::expect_shape(const std::vector<hsize_t>& expected) const {
  if (shape_ != expected)
    fail(fmt::format("has shape {}; expected {}", shape_text(shape_), shape_text(expected)));
}

/// To be called before memory is allocated for the values. Gzip, HDF5's strongest filter, compresses at most
/// 1032 bytes to one.
void HistoryDataset::refuse_more_than_the_file_can_hold() const {
  constexpr double kMostOfAByte = 1100;
  double bytes = static_cast<double>(H5Tget_size(type_.get()));
  for (const hsize_t size : shape_) bytes *= static_cast<double>(size);
  if (bytes <= kMostOfAByte * static_cast<double>(file_bytes_)) return;
  fail(fmt::format(
      "has shape {}, more than a file of {} bytes can hold; the file is damaged; fetch or collect it again",
      shape_text(shape_), file_bytes_));
}

H5T_class_t HistoryDataset::type_class() const {
  return H5Tget_class(type_.get());
}

/// The data set's checksum, if any, which is valid for the type that the writer gives it.
std::optional<uint32_t> HistoryDataset::checksum() const {
  const bool has_one = H5Aexists(dataset_.get(), kChecksumAttribute) > 0;
  if (has_one && H5Tequal(type_.get(), H5T_STD_I32LE) <= 0 && H5Tget_size(type_.get()) != 1) {
    fail(fmt::format(
        "has a checksum and another type than the values had that it was taken of; expected int32, or "
        "booleans; the file is damaged, or it was converted, and then the attribute {} is to be removed",
        kChecksumAttribute));
  }
  return stored_checksum();
}

std::optional<uint32_t> HistoryDataset::stored_checksum() const {
  if (H5Aexists(dataset_.get(), kChecksumAttribute) <= 0) return std::nullopt;
  const Hdf5Handle attribute(H5Aopen(dataset_.get(), kChecksumAttribute, H5P_DEFAULT), H5Aclose);
  const Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
  uint32_t value = 0;
  if (H5Sget_simple_extent_npoints(space.get()) != 1 ||
      H5Aread(attribute.get(), H5T_NATIVE_UINT32, &value) < 0) {
    fail(fmt::format(
        "has a checksum that cannot be read (HDF5 says: {}); the file is damaged; fetch or collect it again",
        hdf5_reason()));
  }
  return value;
}

template <class Value>
std::vector<Value> HistoryDataset::read_part(const std::vector<hsize_t>& part, hid_t memory_type) const {
  const Hdf5Handle file_space(H5Dget_space(dataset_.get()), H5Sclose);
  const Hdf5Handle memory_space(H5Screate_simple(static_cast<int>(part.size()), part.data(), nullptr),
                                H5Sclose);
  const std::vector<hsize_t> origin(part.size(), 0);
  H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, origin.data(), nullptr, part.data(), nullptr);
  std::vector<Value> values(count_of(part));
  if (H5Dread(dataset_.get(), memory_type, memory_space.get(), file_space.get(), H5P_DEFAULT, values.data()) <
      0) {
    fail(fmt::format("cannot be read (HDF5 says: {}); the file may be damaged; fetch or collect it again",
                     hdf5_reason()));
  }
  return values;
}

template <class Stored>
std::vector<Stored> HistoryDataset::read_checked(const std::vector<hsize_t>& part, uint32_t expected) const {
  if (H5Tget_size(type_.get()) != sizeof(Stored))
    fail("has values of another size than its checksum was taken of");
  std::vector<Stored> values = read_part<Stored>(shape_, type_.get());
  const uint32_t found = checksum_of(values.data(), values.size() * sizeof(Stored));
  if (found != expected) fail_as_changed(found, expected);
  keep_leading(values, shape_, part);
  return values;
}

void HistoryDataset::fail_as_changed(uint32_t found, uint32_t expected) const {
  fail(fmt::format(
      "has the checksum {:08x}; expected {:08x}: its values were changed after they were collected; "
      "fetch or collect the file again",
      found, expected));
}

void HistoryDataset::expect_as_written() const {
  const std::optional<uint32_t> expected = stored_checksum();
  if (!expected) fail("has no checksum; expected one, as it was collected; collect the file again");
  std::vector<hsize_t> bytes = shape_;
  bytes.push_back(H5Tget_size(type_.get()));
  std::vector<uint8_t> values(count_of(bytes));
  if (H5Dread(dataset_.get(), type_.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    fail(fmt::format("cannot be read (HDF5 says: {}); the file may be damaged; collect it again",
                     hdf5_reason()));
  }
  const uint32_t found = checksum_of(values.data(), values.size());
  if (found != *expected) fail_as_changed(found, *expected);
}

std::vector<int32_t> HistoryDataset::read_integers(const std::vector<hsize_t>& part) const {
  if (type_class() != H5T_INTEGER) {
    fail("does not hold whole numbers; expected an integer type, such as int32");
  }
  if (const auto expected = checksum()) return read_checked<int32_t>(part, *expected);
  return read_part<int32_t>(part, H5T_NATIVE_INT32);
}

std::vector<float> HistoryDataset::read_reals(const std::vector<hsize_t>& part) const {
  if (type_class() != H5T_INTEGER && type_class() != H5T_FLOAT) {
    fail("does not hold numbers; expected int32 or a floating-point type");
  }
  if (const auto expected = checksum()) {
    const std::vector<int32_t> values = read_checked<int32_t>(part, *expected);
    return {values.begin(), values.end()};
  }
  return read_part<float>(part, H5T_NATIVE_FLOAT);
}

/// h5py stores booleans as an enumeration over int8, which HDF5 converts to no number: its bytes are read as
/// they are.
std::vector<uint8_t> HistoryDataset::read_booleans(const std::vector<hsize_t>& part) const {
  const bool enumeration = type_class() == H5T_ENUM && H5Tget_size(type_.get()) == 1;
  if (!enumeration && type_class() != H5T_INTEGER) {
    fail("does not hold booleans; expected an enumeration over int8 {FALSE, TRUE}, or integers");
  }
  if (const auto expected = checksum()) return read_checked<uint8_t>(part, *expected);
  return read_part<uint8_t>(part, enumeration ? type_.get() : H5T_NATIVE_UINT8);
}

}  // namespace adtrain
