#include "base/Checksum.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>

#include "base/Cores.h"
#include "base/InParallel.h"

namespace adtrain {
namespace {

constexpr size_t kPiece = size_t{8} << 20;

}  // namespace

uint32_t checksum_of(const void* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(0, static_cast<const Bytef*>(bytes), size));
}

uint32_t joined_checksum(uint32_t first, uint32_t second, size_t second_size) {
  return static_cast<uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(second_size)));
}

uint32_t checksum_of_pieces(size_t size, const std::function<uint32_t(size_t, size_t)>& of_piece) {
  std::vector<uint32_t> checksums((size + kPiece - 1) / kPiece);
  const auto length_of = [size](size_t piece) { return std::min(kPiece, size - piece * kPiece); };
  in_parallel(checksums.size(), threads_for_files(),
              [&](size_t piece) { checksums[piece] = of_piece(piece * kPiece, length_of(piece)); });
  uint32_t whole = kChecksumOfNothing;
  for (size_t piece = 0; piece < checksums.size(); ++piece)
    whole = joined_checksum(whole, checksums[piece], length_of(piece));
  return whole;
}

uint32_t checksum_by_threads(const void* bytes, size_t size) {
  const auto* const begin = static_cast<const char*>(bytes);
  return checksum_of_pieces(
      size, [begin](size_t first, size_t length) { return checksum_of(begin + first, length); });
}

std::string checksum_text(uint32_t checksum) {
  return fmt::format("{:08x}", checksum);
}

std::string checksum_text(const void* bytes, size_t size) {
  return checksum_text(checksum_of(bytes, size));
}

}  // namespace adtrain
