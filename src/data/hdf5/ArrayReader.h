#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/Random.h"
#include "data/hdf5/ArrayLayout.h"
#include "data/hdf5/BoundedCache.h"
#include "data/hdf5/FileBytes.h"
#include "data/hdf5/Hdf5Metadata.h"

namespace adtrain {

/// A box of an array, and where its values go: packed, in C order, little-endian.
struct ArrayPart {
  std::shared_ptr<const ArrayLayout> array;
  std::vector<int64_t> first, count;  ///< elements along each axis
  uint8_t* to;
};

/// Reads parts of data sets of HDF5 files: by pread, and inflated by the calling thread, so that threads do
/// not wait for each other. Only where chunks lie is asked of `metadata`. Chunks that neighbouring parts
/// share stay inflated within a budget of memory. Any number of threads may read.
class ArrayReader {
 public:
  /// `cache_bytes` bounds the inflated chunks; places of chunks and open files are bounded besides, at some
  /// megabytes.
  ArrayReader(Hdf5Metadata& metadata, size_t cache_bytes);

  /// Reads all parts, which must lie within their arrays. Throws DataError that names file, data set and
  /// chunk where a chunk lies outside the file, is cut short, or does not inflate to its size.
  void read(const std::vector<ArrayPart>& parts);
  /// Of inflated chunks that are kept now.
  size_t cached_bytes() const { return chunks_.cost(); }
  void drop_cached() { chunks_.clear(); }

 private:
  /// A chunk, or a page of places: of which array, and its number.
  struct Key {
    uint64_t array;
    int64_t number;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return seed_of(key.array, key.number); }
  };
  using Bytes = std::vector<uint8_t>;
  using Page = std::vector<ChunkPlace>;

  void find_places(const std::vector<ArrayPart>& parts);
  std::shared_ptr<const Page> page(const ArrayLayout& array, int64_t number);
  std::shared_ptr<const FileBytes> file(const std::string& path);
  void read_part(const ArrayPart& part);
  bool read_run(const ArrayPart& part);
  std::shared_ptr<const Bytes> chunk(const ArrayLayout& array, int64_t number);
  Bytes piece(const ArrayLayout& array, int64_t number);
  Bytes inflated(const ArrayLayout& array, int64_t number);

  Hdf5Metadata& metadata_;
  BoundedCache<std::string, FileBytes> files_;
  BoundedCache<Key, Page, KeyHash> pages_;
  BoundedCache<Key, Bytes, KeyHash> chunks_;
};

}  // namespace adtrain
