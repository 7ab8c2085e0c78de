#include "base/SymbolicLink.h"

#include <gtest/gtest.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

TEST(SymbolicLink, IsRelativeAndReplacesAnOlderOne) {
  const TemporaryFolder folder;
  const fs::path link = folder.path() / "latest";
  for (const char* name : {"one", "two"}) fs::create_directory(folder.path() / name);
  point_link(link, "one");
  EXPECT_EQ(fs::read_symlink(link), "one");
  point_link(link, "two");
  EXPECT_EQ(fs::read_symlink(link), "two");
  EXPECT_EQ(fs::canonical(link), fs::canonical(folder.path() / "two"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 3);
}

TEST(SymbolicLink, WhereItCannotBeReplacedWhatIsThereStays) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "latest" / "file", "a folder of that name");
  EXPECT_THROW(point_link(folder.path() / "latest", "one"), fs::filesystem_error);
  EXPECT_TRUE(fs::exists(folder.path() / "latest" / "file"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace adtrain
