#include "config/Document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/ConfigTree.h"

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Document read(const std::string& name) {
  Document document;
  document.read_file(name);
  return document;
}

/// "key=value@origin" of every entry, in order.
std::vector<std::string> summary(const Document& document) {
  std::vector<std::string> lines;
  for (const Entry& entry : document.entries()) {
    lines.push_back(entry.key + "=" + entry.text + "@" + entry.origin.text());
  }
  return lines;
}

TEST(Document, TextsAreAListOrHaveColonsBetweenThem) {
  Document document;
  EXPECT_THAT(document.texts_of("plugins"), IsEmpty());
  document.set("plugins=[a.so, 'b, c.so']");
  EXPECT_THAT(document.texts_of("plugins"), ElementsAre("a.so", "b, c.so"));
  document.set("plugins=a.so:/x/b.so");
  EXPECT_THAT(document.texts_of("plugins"), ElementsAre("a.so", "/x/b.so"));
  for (const char* nothing : {"plugins=null", "plugins={a: b}", "plugins=[[a]]", "plugins=[]"}) {
    document.set(nothing);
    EXPECT_THAT(document.texts_of("plugins"), IsEmpty()) << nothing;
  }
  document.set("plugins=[a.so]");
  document.replace("plugins", "/x/a.so");
  EXPECT_THAT(summary(document), ElementsAre("plugins=/x/a.so@command line"));
}

TEST(Document, TheIncludingFileOverridesWhereverItIncludes) {
  const ConfigTree tree;
  tree.write("base.yaml", "lr: 1\nseed: 2\n");
  tree.write("run.yaml", "lr: 3\ninclude: base.yaml\n");
  const Document document = read("run.yaml");
  EXPECT_THAT(document.errors(), IsEmpty());
  EXPECT_THAT(summary(document), ElementsAre("seed=2@base.yaml:2", "lr=3@run.yaml:1"));
}

TEST(Document, LaterIncludesOverrideEarlierOnesAndNest) {
  const ConfigTree tree;
  tree.write("parts/deep.yaml", "a: deep\nb: deep\nc: deep\n");
  tree.write("parts/one.yaml", "include: deep.yaml\nb: one\nd: one\n");
  tree.write("parts/two.yaml", "d: two\n");
  tree.write("run/run.yaml", "include:\n  - ../parts/one.yaml\n  - ../parts/two.yaml\n");
  const Document document = read("run/run.yaml");
  EXPECT_THAT(document.errors(), IsEmpty());
  EXPECT_THAT(summary(document), ElementsAre("a=deep@parts/deep.yaml:1", "c=deep@parts/deep.yaml:3",
                                             "b=one@parts/one.yaml:2", "d=two@parts/two.yaml:1"));
}

TEST(Document, FindsIncludesFromTheWorkingDirectoryAsThePythonProjectsWriteThem) {
  const ConfigTree tree;
  tree.write("config/model/ad_base.yaml", "beta1: 0.9\ndynamics: False\n");
  tree.write("config/model/ad.yaml", "include: config/model/ad_base.yaml\n\nmodel: AD\n");
  const Document document = read("config/model/ad.yaml");
  EXPECT_THAT(document.errors(), IsEmpty());
  EXPECT_THAT(summary(document),
              ElementsAre("beta1=0.9@config/model/ad_base.yaml:1",
                          "dynamics=False@config/model/ad_base.yaml:2", "model=AD@config/model/ad.yaml:3"));
}

TEST(Document, BesideTheIncludingFileComesFirst) {
  const ConfigTree tree;
  tree.write("base.yaml", "from: here\n");
  tree.write("run/base.yaml", "from: beside\n");
  tree.write("run/run.yaml", "include: base.yaml\n");
  EXPECT_THAT(summary(read("run/run.yaml")), ElementsAre("from=beside@run/base.yaml:1"));
}

TEST(Document, NamesBothPlacesOfAMissingIncludeAndTheNearestFile) {
  const ConfigTree tree;
  tree.write("run/base.yaml", "a: 1\n");
  tree.write("run/run.yaml", "lr: 1\ninclude: bass.yaml\n");
  const Document document = read("run/run.yaml");
  EXPECT_THAT(document.errors(),
              ElementsAre(AllOf(StartsWith("run/run.yaml:2: include: found neither run/bass.yaml,"),
                                HasSubstr("nor bass.yaml, from the working directory"),
                                EndsWith("; did you mean run/base.yaml?"))));
  EXPECT_THAT(summary(document), ElementsAre("lr=1@run/run.yaml:1"));
}

TEST(Document, PrintsTheChainOfACircle) {
  const ConfigTree tree;
  tree.write("start.yaml", "include: a.yaml\n");
  tree.write("a.yaml", "include: sub/b.yaml\n");
  tree.write("sub/b.yaml", "x: 1\ninclude: ../a.yaml\n");
  EXPECT_THAT(
      read("start.yaml").errors(),
      ElementsAre("sub/b.yaml:2: include: found a circle, a.yaml -> sub/b.yaml -> a.yaml; expected no file "
                  "to include itself"));
}

TEST(Document, AFileMayBeIncludedOnTwoWays) {
  const ConfigTree tree;
  tree.write("base.yaml", "a: base\nb: 1\nb: 1.0\n");
  tree.write("one.yaml", "include: base.yaml\n");
  tree.write("two.yaml", "include: base.yaml\n");
  tree.write("run.yaml", "include: [one.yaml, two.yaml]\n");
  const Document document = read("run.yaml");
  EXPECT_THAT(document.errors(), IsEmpty());
  EXPECT_THAT(summary(document), ElementsAre("a=base@base.yaml:1", "b=1@base.yaml:2"));
  EXPECT_THAT(document.warnings(), ElementsAre(StartsWith("base.yaml:3: b: found again")));
}

TEST(Document, CollectsTheFaultsOfAllFiles) {
  const ConfigTree tree;
  tree.write("one.yaml", "a: 1\na: 2\n");
  tree.write("two.yaml", "- list\n");
  tree.write("run.yaml", "include: [one.yaml, two.yaml, three.yaml]\nb: 1\n");
  EXPECT_THAT(read("run.yaml").errors(),
              ElementsAre(StartsWith("one.yaml:2: a: "), StartsWith("two.yaml:1: found"),
                          StartsWith("run.yaml:1: include: found neither")));
}

TEST(Document, MissingMainFileNamesTheNearest) {
  const ConfigTree tree;
  tree.write("configs/quickstart.yaml", "a: 1\n");
  EXPECT_THAT(
      read("configs/quikstart.yaml").errors(),
      ElementsAre("configs/quikstart.yaml: found no such file; expected a YAML configuration; did you mean "
                  "configs/quickstart.yaml?"));
  EXPECT_THAT(read("nowhere/at_all.yaml").errors(),
              ElementsAre("nowhere/at_all.yaml: found no such file; expected a YAML configuration"));
}

TEST(Document, TheCommandLineOverridesFilesAndItself) {
  const ConfigTree tree;
  tree.write("run.yaml", "lr: 1\nseed: 2\n");
  Document document = read("run.yaml");
  document.set("lr=0.5");
  document.set("run_name=a=b");
  document.set("lr=0.25");
  document.set("seed=null");
  EXPECT_THAT(document.errors(), IsEmpty());
  EXPECT_THAT(summary(document),
              ElementsAre("run_name=a=b@command line", "lr=0.25@command line", "seed=@command line"));
  EXPECT_EQ(document.entries().back().kind, Entry::Kind::kNull);
}

TEST(Document, RefusesMalformedAssignments) {
  Document document;
  document.set("lr");
  document.set("=3");
  document.set("include=base.yaml");
  document.set("name='open");
  document.set("sizes=[1, 2");
  document.set("freeze=*.norm_1");
  EXPECT_THAT(document.errors(),
              ElementsAre("command line: found 'lr'; expected key=value",
                          "command line: found '=3'; expected key=value",
                          "command line: include: found 'base.yaml'; expected it in a file only",
                          StartsWith("command line: name: found ''open'; expected a YAML scalar"),
                          StartsWith("command line: sizes: found '[1, 2'; expected a YAML scalar"),
                          "command line: freeze: found '*.norm_1'; expected a YAML scalar (a text that "
                          "begins with * stands in quotes, as \"*.norm_1\")"));
}

TEST(Document, UnfoldsANestedMapUnderTheNamesThatItIsGiven) {
  const ConfigTree tree;
  tree.write("run.yaml", "seed: 3\nexperiment:\n  batch: auto\n  margin: 0.8\n  other: 1\n");
  Document document;
  document.read_file("run.yaml");
  document.set("margin=0.5");
  document.unfold("experiment", {{"batch", "train_batch"}, {"margin", "margin"}});
  document.unfold("seed", {});     // no map
  document.unfold("nothing", {});  // not there
  EXPECT_THAT(document.errors(), IsEmpty());
  EXPECT_THAT(summary(document), ElementsAre("seed=3@run.yaml:1", "train_batch=auto@run.yaml:3",
                                             "experiment.other=1@run.yaml:5", "margin=0.5@command line"));
}

TEST(Document, PairsOfNestedMapsStandInTheirOwnLines) {
  const ConfigTree tree;
  tree.write("run.yaml", "seed: 3\nouter:\n  # of all\n  inner:\n    a: 1\n\n    b: 2\n");
  Document document = read("run.yaml");
  document.set("other={c: 3}");
  document.unfold("outer", {{"inner", "inner"}});
  document.unfold("inner", {{"a", "a"}, {"b", "b"}});
  document.unfold("other", {{"c", "c"}});
  EXPECT_THAT(summary(document),
              ElementsAre("seed=3@run.yaml:1", "a=1@run.yaml:5", "b=2@run.yaml:7", "c=3@command line"));
}

TEST(Document, ANestedMapOverridesWhatItsFileIncludes) {
  const ConfigTree tree;
  tree.write("base.yaml", "seed: 3\nbatch: 4\nname: base\n");
  tree.write("run.yaml", "include: base.yaml\nexperiment:\n  seed: 5\n  batch: 6\nkind: a\n");
  Document document = read("run.yaml");
  document.set("batch=8");
  document.unfold("experiment", {{"seed", "seed"}, {"batch", "batch"}});
  document.rename("kind", "name", "other");
  document.rename("seed", "first", "7");
  EXPECT_THAT(document.errors(), IsEmpty());
  EXPECT_THAT(summary(document),
              ElementsAre("first=7@run.yaml:3", "name=other@run.yaml:5", "batch=8@command line"));
}

TEST(Document, PairsOfNestedMapsTakeEffectWhereTheMapStands) {
  const ConfigTree tree;
  tree.write("base.yaml", "experiment: {seed: 5, clip: 1, lr: 1}\ntraining: {batch: 1}\n");
  tree.write("run.yaml", "include: base.yaml\ntraining: {seed: 7, lr: 2}\n");
  Document document = read("run.yaml");
  document.set("lr=3");
  document.set("experiment={batch: 2}");
  document.set("other_name_of_clip=4");
  document.set("batch=9");
  for (const char* map : {"training", "experiment"}) {
    document.unfold(map, {{"seed", "seed"}, {"clip", "clip"}, {"lr", "lr"}, {"batch", "batch"}});
  }
  EXPECT_THAT(document.errors(), IsEmpty());
  EXPECT_THAT(summary(document), ElementsAre("seed=7@run.yaml:2", "lr=3@command line",
                                             "other_name_of_clip=4@command line", "batch=9@command line"));

  document = read("run.yaml");
  for (const char* map : {"training", "experiment"}) {  // in whichever order they are unfolded
    document.unfold(map, {{"seed", "seed"}, {"clip", "clip"}, {"lr", "lr"}});
  }
  EXPECT_THAT(summary(document), ElementsAre("clip=1@base.yaml:1", "seed=7@run.yaml:2", "lr=2@run.yaml:2"));
  document.set("kind=a");
  document.set("lr=3");
  document.rename("clip", "lr", "4");
  document.rename("kind", "seed", "6");
  EXPECT_THAT(summary(document), ElementsAre("seed=6@command line", "lr=3@command line"));
}

TEST(Document, MapsOfOneFileThatContradictEachOtherAreAnError) {
  const ConfigTree tree;
  tree.write("run.yaml",
             "experiment: {seed: 5, lr: 1, rate: 1.0}\nbatch: 4\ntraining: {seed: 7, batch: 8}\n");
  Document document = read("run.yaml");
  const std::map<std::string, std::string> names = {
      {"seed", "seed"}, {"lr", "lr"}, {"rate", "lr"}, {"batch", "batch"}};
  document.unfold("experiment", names);
  document.unfold("training", names);
  EXPECT_THAT(
      document.errors(),
      ElementsAre("run.yaml:3: training.seed: found '7', but seed is '5' (run.yaml:1); expected one of "
                  "them",
                  "run.yaml:3: training.batch: found '8', but batch is '4' (run.yaml:2); expected one of "
                  "them"));
  EXPECT_THAT(document.warnings(),
              ElementsAre("run.yaml:1: experiment.rate: found again with the same value, "
                          "after lr (run.yaml:1); one can go"));
}

}  // namespace
}  // namespace adtrain
