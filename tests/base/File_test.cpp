#include "base/File.h"

#include <future>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/FullDisk.h"
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

TEST(File, AtomicWritesOfOneFileAtTheSameTimeAllSucceed) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "file.txt";
  std::vector<std::future<void>> writers;
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    writers.push_back(std::async(std::launch::async, [&path, letter] {
      for (int i = 0; i < 25; ++i) write_file_atomically(path, std::string(5000, letter));
    }));
  }
  for (auto& writer : writers) EXPECT_NO_THROW(writer.get());
  const std::string content = read_file(path);
  EXPECT_EQ(content, std::string(5000, content.front()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(File, AnAtomicWriteThatFailsLeavesNothingBeside) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "file.txt";
  write_file_atomically(path, "first");
  {
    const FileSizeLimit limit(1000);
    EXPECT_THROW(write_file_atomically(path, std::string(5000, 'x')), std::filesystem::filesystem_error);
  }
  EXPECT_EQ(read_file(path), "first");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
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

/// A whole file, or an error: the first page of a process's memory cannot be read.
TEST(File, AFailureAmidReadingIsAnError) {
  EXPECT_THROW(read_file("/proc/self/mem"), std::filesystem::filesystem_error);
}

TEST(File, WritingWhereNothingMayBeWrittenThrowsAndKeepsTheOldFile) {
  EXPECT_THROW(write_file_atomically("/proc/adtrain/file", "x"), std::filesystem::filesystem_error);
}

TEST(File, AFullDiskIsAnError) {
  EXPECT_THROW(write_file("/dev/full", "x"), std::filesystem::filesystem_error);
}

TEST(File, APipeIsNotWaitedFor) {
  const TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(read_file(pipe), std::filesystem::filesystem_error);
  EXPECT_THROW(read_file("/dev/zero"), std::filesystem::filesystem_error);
}

}  // namespace
}  // namespace adtrain
