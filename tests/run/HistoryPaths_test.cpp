#include "run/own/HistoryPaths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class HistoryPaths : public testing::Test {
 protected:
  HistoryPaths() {
    fs::create_directories(folder_.path() / "data" / "vintix");
    for (const char* name : {"b.hdf5", "a.hdf5", "c.h5", "with,comma.hdf5", "odd[1].hdf5"})
      write_file(folder_.path() / "data" / name, "");
  }
  RunConfig load(const std::string& histories, const std::vector<std::string>& overrides = {}) {
    std::string yaml = "env: CartPole\n# the data\nhistories: " + histories + "\n";
    for (size_t at = yaml.find('~'); at != std::string::npos; at = yaml.find('~'))
      yaml.replace(at, 1, (folder_.path() / "data").string());
    write_file(folder_.path() / "own.yaml", yaml);
    std::vector<std::string> notices;
    return RunConfig::load(folder_.path() / "own.yaml", overrides, notices);
  }
  /// Without the folder.
  std::vector<std::string> names(const std::string& histories) {
    std::vector<std::string> names;
    for (const fs::path& path : history_paths(load(histories)))
      names.push_back(path.lexically_relative(folder_.path() / "data").string());
    return names;
  }
  template <class Act>
  static std::string complaint(const Act& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "no complaint";
  }
  std::string complaint_of(const std::string& histories) {
    return complaint([&] { names(histories); });
  }

  TemporaryFolder folder_;
};

TEST_F(HistoryPaths, AreOneOrSeveralInTheOrderInWhichTheyAreNamed) {
  EXPECT_THAT(names("~/b.hdf5"), ElementsAre("b.hdf5"));
  EXPECT_THAT(names("[~/b.hdf5, ~/a.hdf5]"), ElementsAre("b.hdf5", "a.hdf5"));
  EXPECT_THAT(names("~/vintix, ~/a.hdf5"), ElementsAre("vintix", "a.hdf5"));
  EXPECT_THAT(names("[~/vintix, '~/?.hdf5']"), ElementsAre("vintix", "a.hdf5", "b.hdf5"))
      << "what fits a pattern is in the order of its names";
  EXPECT_THAT(names("'~/[bc].h*5'"), ElementsAre("b.hdf5", "c.h5"));
  EXPECT_THAT(names("~/with,comma.hdf5"), ElementsAre("with,comma.hdf5")) << "what is there is one path";
  EXPECT_THAT(names("['~/odd[1].hdf5']"), ElementsAre("odd[1].hdf5"));
  EXPECT_THAT(names("['~/with?comma.hdf5', ~/a.hdf5]"), ElementsAre("with,comma.hdf5", "a.hdf5"));
}

TEST_F(HistoryPaths, AreSavedAsTheyAreWritten) {
  EXPECT_EQ(load("x.hdf5").data.histories, "x.hdf5");
  EXPECT_EQ(load("[x.hdf5]").data.histories, "x.hdf5");
  const RunConfig several = load("[x.hdf5, 'y/*.hdf5']");
  EXPECT_EQ(several.data.histories, "x.hdf5,y/*.hdf5");
  EXPECT_EQ(load("x.hdf5", {"histories=x.hdf5,y/*.hdf5"}).resolved_yaml(), several.resolved_yaml());
  EXPECT_EQ(load("x.hdf5", {"histories=[x.hdf5, y/*.hdf5]"}).resolved_yaml(), several.resolved_yaml());
  write_file(folder_.path() / "saved.yaml", several.resolved_yaml());
  std::vector<std::string> notices;
  EXPECT_EQ(RunConfig::load(folder_.path() / "saved.yaml", {}, notices).data.histories, "x.hdf5,y/*.hdf5");
}

TEST_F(HistoryPaths, WhatIsNotThereIsNamedWithFileLineKeyAndTheNearestName) {
  EXPECT_THAT(complaint_of("~/aa.hdf5"), AllOf(HasSubstr("own.yaml:3: histories: "),
                                               HasSubstr("aa.hdf5 does not exist"), HasSubstr("/a.hdf5?")));
  EXPECT_THAT(complaint_of("[~/a.hdf5, ~/vintex]"),
              AllOf(HasSubstr("vintex does not exist"), HasSubstr("did you mean"), HasSubstr("/vintix?")));
  EXPECT_THAT(complaint_of("'~/*.hdf'"), AllOf(HasSubstr("own.yaml:3: histories: nothing fits "),
                                               HasSubstr("*.hdf; expected files or folders")));
  EXPECT_THAT(complaint_of("['~/*.hdf5', ~/a.hdf5]"),
              AllOf(HasSubstr("a.hdf5 is named twice"), HasSubstr("*.hdf5 and by ")));
  EXPECT_THAT(
      complaint([&] { history_paths(load("x", {"histories=" + (folder_.path() / "none").string()})); }),
      HasSubstr("command line: histories: "));
  EXPECT_THAT(complaint_of("[]"), HasSubstr("own.yaml:3: histories: found the list []; expected files"));
  EXPECT_THAT(complaint_of("{a: b}"), HasSubstr("own.yaml:3: histories: found the nested map"));
  EXPECT_THAT(complaint_of("[[a], b]"), HasSubstr("own.yaml:3: histories: found the list"));
  EXPECT_THAT(complaint_of("['a,b', c]"), HasSubstr("without commas in their names (? fits any letter)"));
}

}  // namespace
}  // namespace adtrain
