#include "data/CompressedChunks.h"

#include <algorithm>

#include <zlib.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using Bytes = CompressedChunks::Bytes;

/// Groups the first bytes of all values, then the second bytes, and so on.
Bytes shuffled(const Bytes& bytes, size_t value_bytes) {
  Bytes result(bytes.size());
  const size_t values = bytes.size() / value_bytes;
  for (size_t byte = 0; byte < value_bytes; ++byte) {
    for (size_t i = 0; i < values; ++i) result[byte * values + i] = bytes[i * value_bytes + byte];
  }
  return result;
}

Bytes deflated(const Bytes& bytes, int level) {
  uLongf size = compressBound(bytes.size());
  Bytes result(size);
  if (compress2(result.data(), &size, bytes.data(), bytes.size(), level) != Z_OK) {
    throw DataError("zlib cannot compress a history: out of memory; set history_compression: 0");
  }
  result.resize(size);
  return result;
}

}  // namespace

CompressedChunks::CompressedChunks(const void* values, size_t rows, size_t row_values, size_t value_bytes,
                                   size_t rows_of_chunk, int level)
    : rows_of_chunk_(std::clamp(rows_of_chunk, size_t{1}, rows)) {
  const size_t row_bytes = row_values * value_bytes;
  const auto* const bytes = static_cast<const uint8_t*>(values);
  for (size_t first = 0; first < rows; first += rows_of_chunk_) {
    const size_t count = std::min(rows_of_chunk_, rows - first);
    Bytes chunk(bytes + first * row_bytes, bytes + (first + count) * row_bytes);
    chunk.resize(rows_of_chunk_ * row_bytes);
    chunks_.push_back(deflated(shuffled(chunk, value_bytes), level));
  }
}

}  // namespace adtrain
