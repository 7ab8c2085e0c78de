#include "base/FileContent.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "base/Checksum.h"
#include "base/File.h"
#include "base/Random.h"
#include "support/FreshSeed.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

std::string random_bytes(size_t size) {
  RandomStream random(fresh_seed());
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.below(256));
  return bytes;
}

uint32_t checksum_of_zlib(const std::string& bytes) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

/// Sizes in bytes: none, one piece of a reading thread or its edges, and several with a rest.
constexpr size_t kPiece = size_t{8} << 20;
constexpr size_t kSizes[] = {0, 1, 1000, kPiece, kPiece + 1, 3 * kPiece + 12345};

TEST(FileContent, IsTheFilesWithItsChecksumWhateverItsSize) {
  const TemporaryFolder folder;
  for (const size_t size : kSizes) {
    const std::string bytes = random_bytes(size);
    write_file(folder.path() / "file", bytes);
    const FileContent content(folder.path() / "file");
    EXPECT_TRUE(content.bytes() == bytes) << size;
    EXPECT_EQ(content.checksum(), checksum_of_zlib(bytes)) << size;
    EXPECT_EQ(checksum_of_file(folder.path() / "file"), checksum_of_zlib(bytes)) << size;
    EXPECT_EQ(checksum_by_threads(bytes.data(), bytes.size()), checksum_of_zlib(bytes)) << size;
  }
}

TEST(FileContent, ChecksumsOfPiecesJoin) {
  const std::string bytes = random_bytes(100'000);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{77'777}, bytes.size()}) {
    const uint32_t first = checksum_of(bytes.data(), cut);
    const uint32_t second = checksum_of(bytes.data() + cut, bytes.size() - cut);
    EXPECT_EQ(joined_checksum(first, second, bytes.size() - cut), checksum_of_zlib(bytes)) << cut;
  }
  EXPECT_EQ(checksum_text("123456789"), "cbf43926");  // the check value of CRC-32
}

TEST(FileContent, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_THROW(FileContent(folder.path()), std::filesystem::filesystem_error);
  EXPECT_THROW(FileContent(folder.path() / "missing"), std::filesystem::filesystem_error);
  EXPECT_THROW(FileContent("/dev/zero"), std::filesystem::filesystem_error);
  EXPECT_THROW(checksum_of_file(folder.path() / "missing"), std::filesystem::filesystem_error);
}

TEST(FileContent, AFileThatIsCutOffMeanwhileIsAnError) {
  const TemporaryFolder folder;
  write_file(folder.path() / "file", "1234567");
  const FileReader file(folder.path() / "file");
  std::filesystem::resize_file(folder.path() / "file", 3);
  std::string bytes(file.size(), ' ');
  ASSERT_EQ(bytes.size(), 7U);
  EXPECT_EQ(file.read_some(0, bytes.data(), bytes.size()), 3U);
  EXPECT_THROW(file.read(0, bytes.data(), bytes.size()), std::filesystem::filesystem_error);
}

}  // namespace
}  // namespace adtrain
