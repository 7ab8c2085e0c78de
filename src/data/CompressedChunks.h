#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace adtrain {

/// An array divided into chunks of whole rows, each as HDF5's filters shuffle and gzip would write it. Made
/// without HDF5, which only one thread at a time may call, so that many threads can compress.
class CompressedChunks {
 public:
  using Bytes = std::vector<uint8_t>;

  /// `values` are rows × row_values numbers of `value_bytes` bytes each, which are divided into chunks of
  /// `rows_of_chunk` rows, or of all where there are fewer; `level` is gzip's, 1 … 9.
  CompressedChunks(const void* values, size_t rows, size_t row_values, size_t value_bytes,
                   size_t rows_of_chunk, int level);

  /// Rows of every chunk; the last is padded with zeros.
  size_t rows_of_chunk() const { return rows_of_chunk_; }
  const std::vector<Bytes>& chunks() const { return chunks_; }

 private:
  size_t rows_of_chunk_;
  std::vector<Bytes> chunks_;
};

}  // namespace adtrain
