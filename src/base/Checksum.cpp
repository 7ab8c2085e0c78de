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

uint32_t checksum_of_piece(const char* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes), size));
}

}  // namespace

uint32_t checksum_of(const void* bytes, size_t size) {
  const auto* const first = static_cast<const char*>(bytes);
  if (size <= kPiece) return checksum_of_piece(first, size);
  std::vector<uint32_t> pieces((size + kPiece - 1) / kPiece);
  const auto size_of = [&](size_t piece) { return std::min(kPiece, size - piece * kPiece); };
  in_parallel(pieces.size(), threads_for_files(), [&](size_t piece) {
    pieces[piece] = checksum_of_piece(first + piece * kPiece, size_of(piece));
  });
  uint32_t whole = pieces.front();
  for (size_t piece = 1; piece < pieces.size(); ++piece)
    whole = joined_checksum(whole, pieces[piece], size_of(piece));
  return whole;
}

uint32_t joined_checksum(uint32_t first, uint32_t second, size_t second_size) {
  return static_cast<uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(second_size)));
}

std::string checksum_text(uint32_t checksum) {
  return fmt::format("{:08x}", checksum);
}

std::string checksum_text(const void* bytes, size_t size) {
  return checksum_text(checksum_of(bytes, size));
}

}  // namespace adtrain
