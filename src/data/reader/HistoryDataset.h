#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/Hdf5.h"

namespace adtrain {

/// "(12, 4)".
std::string shape_text(const std::vector<hsize_t>& shape);

/// A data set of a history file, with its place for messages. Reading converts whatever integers or reals are
/// stored. Every error is a DataError that names file and data set.
class HistoryDataset {
 public:
  /// `name` is a path in the file: "17/actions".
  HistoryDataset(const std::filesystem::path& path, const Hdf5Handle& file, const std::string& name);

  const std::vector<hsize_t>& shape() const { return shape_; }
  void expect_shape(const std::vector<hsize_t>& expected) const;
  [[noreturn]] void fail(const std::string& what) const;

  /// The leading `part` of every dimension.
  std::vector<int32_t> read_integers(const std::vector<hsize_t>& part) const;
  std::vector<float> read_reals(const std::vector<hsize_t>& part) const;
  std::vector<uint8_t> read_booleans(const std::vector<hsize_t>& part) const;
  /// Reads everything, whatever its type, and fails where it differs from its checksum or has none.
  void expect_as_written() const;

 private:
  H5T_class_t type_class() const;
  std::optional<uint32_t> stored_checksum() const;
  std::optional<uint32_t> checksum() const;
  [[noreturn]] void fail_as_changed(uint32_t found, uint32_t expected) const;
  void refuse_more_than_the_file_can_hold() const;
  template <class Value>
  std::vector<Value> read_part(const std::vector<hsize_t>& part, hid_t memory_type) const;
  template <class Stored>
  std::vector<Stored> read_checked(const std::vector<hsize_t>& part, uint32_t expected) const;

  std::string place_;
  uintmax_t file_bytes_;
  Hdf5Handle dataset_;
  Hdf5Handle type_;
  std::vector<hsize_t> shape_;
};

}  // namespace adtrain
