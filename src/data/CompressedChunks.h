#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace adtrain {

/// An array cut into chunks of whole rows, each as HDF5's filters shuffle and gzip would leave it. Made
/// outside of HDF5, which one thread at a time may call, so that many threads compress.
class CompressedChunks {
 public:
  using Bytes = std::vector<uint8_t>;

  /// `values` are rows × row_values numbers of `value_bytes` bytes each; `level` is gzip's, 1 … 9.
  CompressedChunks(const void* values, size_t rows, size_t row_values, size_t value_bytes, int level);

  /// Of every chunk; the last is filled up with zeros.
  size_t rows_of_chunk() const { return rows_of_chunk_; }
  const std::vector<Bytes>& chunks() const { return chunks_; }

 private:
  size_t rows_of_chunk_;
  std::vector<Bytes> chunks_;
};

}  // namespace adtrain
