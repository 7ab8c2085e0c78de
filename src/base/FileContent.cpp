#include "base/FileContent.h"

#include "base/Checksum.h"
#include "base/File.h"

namespace adtrain {

FileContent::FileContent(const std::filesystem::path& path) {
  const FileReader file(path);
  size_ = file.size();
  bytes_ = std::make_shared_for_overwrite<char[]>(size_);
  checksum_ = checksum_of_pieces(size_, [&](size_t first, size_t length) {
    file.read(first, bytes_.get() + first, length);
    return checksum_of(bytes_.get() + first, length);
  });
}

uint32_t checksum_of_file(const std::filesystem::path& path) {
  const FileReader file(path);
  return checksum_of_pieces(file.size(), [&file](size_t first, size_t length) {
    const auto bytes = std::make_unique_for_overwrite<char[]>(length);
    file.read(first, bytes.get(), length);
    return checksum_of(bytes.get(), length);
  });
}

}  // namespace adtrain
