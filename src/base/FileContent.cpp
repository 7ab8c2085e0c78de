#include "base/FileContent.h"

#include <algorithm>
#include <vector>

#include "base/Checksum.h"
#include "base/Cores.h"
#include "base/File.h"
#include "base/InParallel.h"

namespace adtrain {
namespace {

constexpr size_t kPiece = size_t{8} << 20;

/// Reads the file by pieces, the one that begins at `first` into the array place(first, size), and returns
/// its checksum. Several threads call `place`.
template <class Place>
uint32_t read_pieces(const FileReader& file, const Place& place) {
  const size_t size = file.size();
  std::vector<uint32_t> checksums((size + kPiece - 1) / kPiece);
  const auto size_of = [size](size_t piece) { return std::min(kPiece, size - piece * kPiece); };
  in_parallel(checksums.size(), threads_for_files(), [&](size_t piece) {
    const auto bytes = place(piece * kPiece, size_of(piece));
    file.read(piece * kPiece, &bytes[0], size_of(piece));
    checksums[piece] = checksum_of(&bytes[0], size_of(piece));
  });
  uint32_t whole = 0;  // of no bytes
  for (size_t piece = 0; piece < checksums.size(); ++piece)
    whole = joined_checksum(whole, checksums[piece], size_of(piece));
  return whole;
}

}  // namespace

FileContent::FileContent(const std::filesystem::path& path) {
  const FileReader file(path);
  size_ = file.size();
  bytes_ = std::make_shared_for_overwrite<char[]>(size_);
  checksum_ = read_pieces(file, [this](size_t first, size_t) { return bytes_.get() + first; });
}

uint32_t checksum_of_file(const std::filesystem::path& path) {
  return read_pieces(FileReader(path),
                     [](size_t, size_t size) { return std::make_unique_for_overwrite<char[]>(size); });
}

}  // namespace adtrain
