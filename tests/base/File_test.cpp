#include "base/File.h"

#include <gtest/gtest.h>

#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

TEST(File, AtomicWriteReplacesTheContentAndLeavesNoTemporary) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "deep" / "down" / "file.txt";
  write_file_atomically(path, "first");
  write_file_atomically(path, "second");
  EXPECT_EQ(read_file(path), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path.parent_path()), {}), 1);
}

TEST(File, ReadingAMissingFileOrAFolderNamesThePath) {
  const TemporaryFolder folder;
  for (const auto& path : {folder.path() / "absent", folder.path()}) {
    try {
      read_file(path);
      FAIL() << "expected an error for " << path;
    } catch (const std::filesystem::filesystem_error& error) {
      EXPECT_EQ(error.path1(), path);
    }
  }
}

TEST(File, WritingWhereNothingMayBeWrittenThrowsAndKeepsTheOldFile) {
  EXPECT_THROW(write_file_atomically("/proc/adtrain/file", "x"), std::filesystem::filesystem_error);
}

TEST(File, AFullDiskIsAnError) {
  EXPECT_THROW(write_file("/dev/full", "x"), std::filesystem::filesystem_error);
}

}  // namespace
}  // namespace adtrain
