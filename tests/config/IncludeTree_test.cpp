#include "config/IncludeTree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/ConfigTree.h"

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string numbered(int number) {
  return "n" + std::to_string(number) + ".yaml";
}

std::vector<std::string> summary(const IncludeTree& tree) {
  std::vector<std::string> lines;
  for (const Entry& entry : tree.entries()) lines.push_back(entry.key + "=" + entry.text);
  return lines;
}

TEST(IncludeTree, FilesThatIncludeEachOtherTwiceAreReadOnce) {
  const ConfigTree folder;
  constexpr int kLevels = 60;  // read in each place these would be 2⁶⁰ files
  for (int level = 0; level < kLevels; ++level) {
    const std::string next = numbered(level + 1);
    folder.write(numbered(level),
                 "include: [" + next + ", " + next + "]\nlevel: " + std::to_string(level) + "\n");
  }
  folder.write(numbered(kLevels), "level: last\ndeepest: 1\n");
  const IncludeTree tree(numbered(0));
  EXPECT_THAT(tree.errors(), IsEmpty());
  EXPECT_THAT(summary(tree), ElementsAre("deepest=1", "level=0"));
}

TEST(IncludeTree, AFileTakesEffectInEveryPlaceWhereItIsIncluded) {
  const ConfigTree folder;
  folder.write("base.yaml", "a: base\nb: base\n");
  folder.write("one.yaml", "include: base.yaml\na: one\nc: one\n");
  folder.write("run.yaml", "include: [base.yaml, one.yaml, base.yaml]\n");
  EXPECT_THAT(summary(IncludeTree("run.yaml")), ElementsAre("c=one", "a=base", "b=base"));
  folder.write("run.yaml", "include: [base.yaml, base.yaml, one.yaml]\n");
  EXPECT_THAT(summary(IncludeTree("run.yaml")), ElementsAre("b=base", "a=one", "c=one"));
}

TEST(IncludeTree, AChainOfManyFilesIsRefusedByName) {
  const ConfigTree folder;
  for (int link = 0; link < 300; ++link)
    folder.write(numbered(link), "include: " + numbered(link + 1) + "\n");
  folder.write(numbered(300), "a: 1\n");
  EXPECT_THAT(IncludeTree(numbered(0)).errors(),
              ElementsAre(AllOf(StartsWith("n99.yaml:1: include: found n100.yaml"), HasSubstr("100"))));
}

TEST(IncludeTree, AFileAsLargeAsNoConfigurationIsNotRead) {
  const ConfigTree folder;
  folder.write("large.yaml", "a: " + std::string(3 << 20, 'x') + "\n");
  EXPECT_THAT(
      IncludeTree("large.yaml").errors(),
      ElementsAre(AllOf(StartsWith("large.yaml: found a configuration of 3.0 MiB"), HasSubstr("1.0 MiB"))));
  folder.write("a.yaml", "a: " + std::string(700'000, 'x') + "\ninclude: b.yaml\n");
  folder.write("b.yaml", "b: " + std::string(700'000, 'x') + "\n");
  EXPECT_THAT(IncludeTree("a.yaml").errors(),
              ElementsAre(StartsWith("b.yaml: found a configuration of 1.3 MiB")));
}

TEST(IncludeTree, LinksInACircleAreNamed) {
  const ConfigTree folder;
  folder.write("run.yaml", "include: alias.yaml\n");
  std::filesystem::create_symlink("run.yaml", "alias.yaml");
  EXPECT_THAT(IncludeTree("run.yaml").errors(),
              ElementsAre(HasSubstr("found a circle, run.yaml -> alias.yaml")));
}

}  // namespace
}  // namespace adtrain
