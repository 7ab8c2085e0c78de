#include "run/ResultsFolder.h"

#include <functional>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "support/FullDisk.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// What is said of a folder that cannot be written; "nothing" where it can.
std::string said_of(const std::function<void()>& action) {
  try {
    action();
    return "nothing";
  } catch (const EnvironmentError& error) {
    return error.what();
  }
}

std::string said_before_the_work(const fs::path& folder) {
  return said_of([&] { ResultsFolder{folder, "choose another by --here"}.check(); });
}

int64_t entries_of(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), {});
}

TEST(ResultsFolder, WhatCanBeWrittenIsLeftAsItWas) {
  const TemporaryFolder folder;
  EXPECT_EQ(said_before_the_work(folder.path()), "nothing");
  EXPECT_EQ(said_before_the_work(folder.path() / "made" / "later"), "nothing");
  EXPECT_EQ(said_before_the_work(folder.path() / "made/"), "nothing");
  fs::create_directory_symlink(folder.path(), folder.path() / "link");
  EXPECT_EQ(said_before_the_work(folder.path() / "link"), "nothing");
  EXPECT_EQ(entries_of(folder.path()), 1) << "the link";
}

TEST(ResultsFolder, WhatIsNoFolderIsSaidBeforeTheWork) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "file";
  write_file(file, "not a folder");
  for (const fs::path& inside : {file, fs::path(file.string() + "/"), file / "scores" / "part-0-of-2"}) {
    EXPECT_THAT(
        said_before_the_work(inside),
        AllOf(HasSubstr("results cannot be written into " + inside.string() + ": Not a directory ["),
              HasSubstr("expected a folder that can be written"), HasSubstr("make every part of the path"),
              testing::EndsWith(", or choose another by --here")));
  }
  fs::create_symlink("nowhere", folder.path() / "link");
  EXPECT_THAT(said_before_the_work(folder.path() / "link" / "scores"),
              HasSubstr("link/scores: No such file or directory"));
  EXPECT_EQ(read_file(file), "not a folder");
  EXPECT_EQ(entries_of(folder.path()), 2);
}

TEST(ResultsFolder, AFullDiskIsSaidBeforeTheWorkAndWhileResultsAreWritten) {
  const TemporaryFolder folder;
  const FileSizeLimit limit(1000);
  EXPECT_THAT(said_before_the_work(folder.path() / "scores"),
              AllOf(HasSubstr("scores: File too large ["), HasSubstr("`ulimit -f` shows the limit")));
  EXPECT_EQ(entries_of(folder.path()), 0) << "and nothing occupies the room that is lacking";
  const ResultsFolder results{folder.path() / "run" / "scores", "choose another by --here"};
  const std::string said = said_of(
      [&] { results.write([&] { write_file_atomically(results.path / "a.npy", std::string(5000, 'a')); }); });
  EXPECT_THAT(said, AllOf(HasSubstr("scores: File too large ["), HasSubstr("scores/a.npy"),
                          HasSubstr("run/scores grow as large"), HasSubstr("choose another by --here")));
  EXPECT_EQ(entries_of(folder.path()), 0) << "nor do the folders that were made for it";
  EXPECT_THROW(results.write([] { throw DataError("another one"); }), DataError);
}

TEST(ResultsFolder, AStartThatWasStoppedIsNoFailure) {
  const TemporaryFolder folder;
  const ResultsFolder results{folder.path(), ""};
  write_file(results.failure(), "rank 1 of 2 failed first");
  results.ask_for_requeue();
  EXPECT_FALSE(std::filesystem::exists(results.failure()));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "requeue"));
  results.forget_earlier_starts();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace adtrain
