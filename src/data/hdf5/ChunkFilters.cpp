#include "data/hdf5/ChunkFilters.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <zlib.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr size_t kChecksumBytes = 4;
constexpr size_t kMostFilters = 32;  ///< HDF5's own limit: the mask has a bit for each

/// Registered filters (The HDF Group's list) whose plug-ins Debian and Ubuntu package.
struct Plugin {
  int64_t number;
  const char* name;
  const char* package;
};
constexpr Plugin kPlugins[] = {
    {4, "szip", "libhdf5-dev, whose h5repack has it"},
    {5, "nbit", "libhdf5-dev, whose h5repack has it"},
    {6, "scaleoffset", "libhdf5-dev, whose h5repack has it"},
    {307, "bzip2", "hdf5-filter-plugin"},
    {32000, "lzf", "hdf5-plugin-lzf"},
    {32001, "blosc", "hdf5-filter-plugin-blosc-serial"},
    {32004, "lz4", "hdf5-filter-plugin"},
    {32008, "bitshuffle", "hdf5-filter-plugin"},
    {32013, "zfp", "hdf5-filter-plugin-zfp-serial"},
    {32015, "zstd", "Python's hdf5plugin"},
    {32026, "blosc2", "Python's hdf5plugin"},
};

[[noreturn]] void refuse(int64_t number, const std::string& name, const std::string& place) {
  const auto* const known = std::ranges::find(kPlugins, number, &Plugin::number);
  const bool is_known = known != std::end(kPlugins);
  throw DataError(fmt::format(
      "{} is compressed by filter {} ({}); expected gzip, shuffle or fletcher32, which are read in place; "
      "rewrite the file with `h5repack -f GZIP=4 FILE OUT`{}",
      place, number,
      is_known       ? known->name
      : name.empty() ? "of no name"
                     : abridged(name, 60),
      is_known ? fmt::format(" (the filter is in {})", known->package)
               : ", where that filter's plug-in is installed"));
}

/// Fletcher's checksum over 16-bit words in big-endian order, as HDF5 computes it (H5_checksum_fletcher32).
uint32_t fletcher32(const uint8_t* bytes, size_t size) {
  constexpr size_t kWordsBeforeOverflow = 360;
  uint32_t sum = 0, sum_of_sums = 0;
  const auto fold = [](uint32_t value) { return (value & 0xffffU) + (value >> 16); };
  size_t words = size / 2;
  while (words > 0) {
    size_t block = std::min(words, kWordsBeforeOverflow);
    words -= block;
    for (; block > 0; --block, bytes += 2) {
      sum += static_cast<uint32_t>(bytes[0]) << 8 | bytes[1];
      sum_of_sums += sum;
    }
    sum = fold(sum);
    sum_of_sums = fold(sum_of_sums);
  }
  if (size % 2 == 1) {
    sum += static_cast<uint32_t>(*bytes) << 8;
    sum_of_sums = fold(sum_of_sums + sum);
    sum = fold(sum);
  }
  return fold(sum_of_sums) << 16 | fold(sum);
}

/// The four bytes at the end, little-endian; early versions of HDF5 wrote each half's bytes exchanged.
bool fletcher_agrees(const std::vector<uint8_t>& stored) {
  const size_t size = stored.size() - kChecksumBytes;
  uint32_t found = 0;
  std::memcpy(&found, stored.data() + size, kChecksumBytes);
  const uint32_t expected = fletcher32(stored.data(), size);
  const uint32_t exchanged = (expected & 0x00ff00ffU) << 8 | (expected >> 8 & 0x00ff00ffU);
  return found == expected || found == exchanged;
}

/// "" or why the zlib stream is not whole, or not of that size.
std::string inflate_exactly(const std::vector<uint8_t>& stored, uint8_t* to, size_t raw) {
  uLongf size = raw;
  const int result = ::uncompress(to, &size, stored.data(), stored.size());
  if (result == Z_BUF_ERROR) return fmt::format("it inflates to more than {} bytes", raw);
  if (result != Z_OK) return "its gzip stream is damaged or cut short";
  return size == raw ? "" : fmt::format("it inflates to {} bytes; expected {}", size, raw);
}

/// The first bytes of all values, then the second bytes, and so on, become values. Bytes behind the last
/// whole value were left where they are.
void unshuffle(const uint8_t* from, size_t size, size_t item, uint8_t* to) {
  const size_t values = size / item;
  for (size_t byte = 0; byte < item; ++byte) {
    for (size_t i = 0; i < values; ++i) to[i * item + byte] = from[byte * values + i];
  }
  std::memcpy(to + values * item, from + values * item, size % item);
}

}  // namespace

ChunkFilters::ChunkFilters(std::vector<int64_t> numbers, const std::vector<std::string>& names, size_t item,
                           const std::string& place)
    : numbers_(std::move(numbers)), item_(item) {
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const int64_t number = numbers_[i];
    if (number != kDeflate && number != kShuffle && number != kFletcher32)
      refuse(number, i < names.size() ? names[i] : "", place);
  }
  if (numbers_.size() > kMostFilters || std::ranges::count(numbers_, kDeflate) > 1) {
    throw DataError(
        fmt::format("{} is compressed by {} filters, gzip {} times; expected gzip once at most; rewrite the "
                    "file with `h5repack -f GZIP=4 FILE OUT`",
                    place, numbers_.size(), std::ranges::count(numbers_, kDeflate)));
  }
}

size_t ChunkFilters::most_stored(size_t raw) {
  return ::compressBound(raw) + kMostFilters * kChecksumBytes;
}

bool ChunkFilters::can_shrink(size_t raw, size_t stored, uint32_t skipped) const {
  constexpr size_t kMostOfAByte = 1032;  // deflate's limit
  for (size_t i = 0; i < numbers_.size(); ++i) {
    if (numbers_[i] == kDeflate && applies(i, skipped)) return raw / kMostOfAByte <= stored;
  }
  return raw <= stored;
}

std::string ChunkFilters::undo(std::vector<uint8_t>& stored, uint32_t skipped, uint8_t* to,
                               size_t raw) const {
  std::vector<uint8_t> buffer;
  for (size_t filter = numbers_.size(); filter-- > 0;) {
    if (!applies(filter, skipped)) continue;
    if (numbers_[filter] == kFletcher32) {
      if (stored.size() < kChecksumBytes || !fletcher_agrees(stored)) return "its checksum differs";
      stored.resize(stored.size() - kChecksumBytes);
      continue;
    }
    // What was done before this filter has added checksums to the values.
    size_t size = raw;
    bool last = true;
    for (size_t before = 0; before < filter; ++before) {
      if (!applies(before, skipped)) continue;
      last = false;
      if (numbers_[before] == kFletcher32) size += kChecksumBytes;
    }
    if (!last) buffer.resize(size);
    uint8_t* const into = last ? to : buffer.data();
    if (numbers_[filter] == kDeflate) {
      if (std::string wrong = inflate_exactly(stored, into, size); !wrong.empty()) return wrong;
    } else {
      if (stored.size() != size) return fmt::format("it has {} bytes; expected {}", stored.size(), size);
      unshuffle(stored.data(), size, item_, into);
    }
    if (last) return "";
    std::swap(stored, buffer);
  }
  if (stored.size() != raw) return fmt::format("it has {} bytes; expected {}", stored.size(), raw);
  std::memcpy(to, stored.data(), raw);
  return "";
}

}  // namespace adtrain
