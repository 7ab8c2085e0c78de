#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace adtrain {

/// What was done to the chunks of an HDF5 data set when they were written, to be undone: HDF5's own filters
/// deflate (gzip), shuffle and fletcher32, by the HDF5 File Format Specification 3.0, IV.A.2.l. A value.
class ChunkFilters {
 public:
  static constexpr int64_t kDeflate = 1, kShuffle = 2, kFletcher32 = 3;

  ChunkFilters() = default;
  /// Filters by their numbers, in the order in which they were applied. `item` is the size of one number in
  /// bytes. Throws DataError where one is not known: names `place`, the filter, and the package that has it.
  ChunkFilters(std::vector<int64_t> numbers, const std::vector<std::string>& names, size_t item,
               const std::string& place);

  bool empty() const { return numbers_.empty(); }
  /// The most bytes that a chunk of `raw` bytes can have in the file.
  static size_t most_stored(size_t raw);
  /// Whether a chunk of `raw` bytes can have only `stored` bytes in the file.
  bool can_shrink(size_t raw, size_t stored, uint32_t skipped) const;

  /// Undoes the filters. `skipped` is a mask: bit i for filter i not applied to this chunk. `stored` is
  /// overwritten. Writes exactly `raw` bytes to `to`. Returns "" or what is wrong with the chunk. Any number
  /// of threads.
  std::string undo(std::vector<uint8_t>& stored, uint32_t skipped, uint8_t* to, size_t raw) const;

 private:
  bool applies(size_t filter, uint32_t skipped) const { return (skipped >> filter & 1U) == 0; }

  std::vector<int64_t> numbers_;
  size_t item_ = 1;
};

}  // namespace adtrain
