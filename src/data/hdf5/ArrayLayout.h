#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/ElementType.h"
#include "data/hdf5/ChunkFilters.h"

namespace adtrain {

/// Where the values of a data set of an HDF5 file lie: an array in C order, in pieces of equal shape,
/// `chunk`, which are chunks of the file or, where it is contiguous, parts that are read at once. Immutable.
struct ArrayLayout {
  std::string path;     ///< of the file
  std::string dataset;  ///< its name in the file, "17/states"
  uint64_t id = 0;      ///< differs for all layouts of a process
  ElementType type = ElementType::kUint8;
  bool big_endian = false;
  std::vector<int64_t> shape;
  std::vector<int64_t> chunk;  ///< extents of a piece; pieces at the edges reach beyond the array
  bool contiguous = false;
  std::optional<uint64_t> address;  ///< of a contiguous one: its first byte; nothing where none was written
  ChunkFilters filters;
  std::vector<uint8_t> fill;  ///< one element, for pieces that were never written

  /// Takes what the reader process says (description_of). Throws DataError that names file and data set where
  /// the values cannot be read in place: another type or storage, an unknown filter, chunks of more than
  /// kLargestChunk bytes, or numbers that contradict each other as those of a damaged file do.
  static ArrayLayout from_json(const nlohmann::json& description, std::string path, std::string dataset);

  static constexpr int64_t kLargestChunk = int64_t{1} << 28;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t item() const { return static_cast<int64_t>(size_of(type)); }
  /// In bytes, before filters.
  int64_t chunk_bytes() const;
  /// Pieces along each axis.
  std::vector<int64_t> grid() const;
  /// "x.hdf5: data set 17/states", for errors.
  std::string place() const;
};

}  // namespace adtrain
