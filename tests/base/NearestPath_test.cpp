#include "base/NearestPath.h"

#include <gtest/gtest.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

TEST(NearestPath, NamesWhatIsThereInstead) {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder.path();
  std::filesystem::create_directories(root / "histories");
  for (const char* name : {"xland.hdf5", "walk.hdf5", "c", "d", "e", "f", ".hidden"})
    write_file(root / "histories" / name, "");
  const auto said = [&](const char* path) {
    std::string text = nearest_path(root / path);
    for (size_t at = text.find(root.string()); at != std::string::npos; at = text.find(root.string()))
      text.replace(at, root.string().size(), "ROOT");
    return text;
  };
  EXPECT_EQ(said("histories/xlend.hdf5"), "; did you mean ROOT/histories/xland.hdf5?");
  EXPECT_EQ(said("histories/XLand.hdf5/"), "; did you mean ROOT/histories/xland.hdf5?");
  EXPECT_EQ(said("historys/xland.hdf5"), "; did you mean ROOT/histories?");
  EXPECT_EQ(said("histories/completely-different"),
            "; ROOT/histories holds c, d, e, f, walk.hdf5 and 1 more");
  std::filesystem::create_directories(root / "empty");
  EXPECT_EQ(said("empty/a"), "");
}

}  // namespace
}  // namespace adtrain
