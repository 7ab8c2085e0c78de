#include "data/formats/ListedTasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "data/formats/HistorySource.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// As Vintix writes them, but for names.
constexpr const char* kList = R"(ant_v4:
  type: "default"
  path: "mujoco/ant_v4/"
  group: "ant"
  reward_scale: 0.1
  episode_sparsity: 3
  random_score: -60.5
  expert_score: 6300
  note: seen in 2024
door-v2:
  type: "test"
  path: /elsewhere/door
)";

class ListedTasks : public testing::Test {
 protected:
  std::vector<ListedTask> read(const std::string& yaml) {
    write_file(folder_.path() / "some.yaml", yaml);
    return read_listed_tasks(folder_.path() / "some.yaml", "data");
  }
  std::string complaint(const std::string& yaml) {
    try {
      read(yaml);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no complaint";
  }
  TemporaryFolder folder_;
};

TEST_F(ListedTasks, AreReadAsTheyAre) {
  const std::vector<ListedTask> tasks = read(kList);
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0].name, "ant_v4");
  EXPECT_EQ(tasks[0].folder, "data/mujoco/ant_v4");
  EXPECT_EQ(tasks[0].group, "ant");
  EXPECT_TRUE(tasks[0].trained);
  EXPECT_EQ(tasks[0].attributes.at("reward_scale"), "0.1");
  EXPECT_EQ(tasks[0].attributes.at("episode_sparsity"), "3");
  EXPECT_EQ(tasks[0].attributes.at("note"), "seen in 2024") << "other keys are for people";
  EXPECT_FALSE(tasks[1].trained);
  EXPECT_EQ(tasks[1].folder, "/elsewhere/door");
  EXPECT_EQ(read("a: {path: b, episode_range: [0.0, 0.5]}\n").front().attributes.at("episode_range"),
            "0,0.5");
  EXPECT_TRUE(is_task_list("x/mujoco.yaml") && is_task_list("a.yml"));
  EXPECT_FALSE(is_task_list("yaml/a.hdf5"));
}

TEST_F(ListedTasks, WhatIsWrongIsNamedWithItsLine) {
  const auto of = [&](const std::string& line) { return complaint("a:\n  path: b\n  " + line + "\n"); };
  EXPECT_THAT(of("reward_scal: 2"),
              AllOf(HasSubstr("some.yaml:3: 'a': reward_scal is no key"), HasSubstr("reward_scale?")));
  EXPECT_THAT(of("reward_scale: 0"), HasSubstr("some.yaml:3: 'a': reward_scale is 0"));
  EXPECT_THAT(of("reward_scale: small"), HasSubstr("reward_scale is no number"));
  EXPECT_THAT(of("episode_sparsity: 1.5"), HasSubstr("episode_sparsity is '1.5'; expected a whole number"));
  EXPECT_THAT(of("type: defualt"), AllOf(HasSubstr("type is 'defualt'"), HasSubstr("did you mean default?")));
  EXPECT_THAT(of("episode_range: [0.5, 0.2]"), HasSubstr("expected two shares from 0 to 1"));
  EXPECT_THAT(of("episode_range: half"), HasSubstr("episode_range is no list of numbers"));
  EXPECT_THAT(of("path: [b]"), HasSubstr("path is no text"));
  EXPECT_THAT(complaint("a: {group: b}\n"), HasSubstr("some.yaml:1: 'a': path is not there"));
  EXPECT_THAT(complaint("a: {path: b}\nb: {path: c}\na: {path: d}\n"),
              HasSubstr("some.yaml:3: 'a' is there again, after line 1"));
  EXPECT_THAT(complaint("- a\n"), HasSubstr("expected a map of tasks as Vintix has it"));
  EXPECT_THAT(complaint("a: {path: [\n"), HasSubstr("some.yaml:"));
}

TEST_F(ListedTasks, FoldersThatAreNotThereAreNamed) {
  std::filesystem::create_directories(folder_.path() / "mujoco" / "ant_v4");
  const auto open = [&](const std::string& yaml) -> std::string {
    write_file(folder_.path() / "some.yaml", yaml);
    HistorySourceOptions options;
    options.list_folder = folder_.path();
    try {
      HistorySource::open(folder_.path() / "some.yaml", options);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no complaint";
  };
  EXPECT_THAT(open("a: {path: mujoco/ant_v5}\n"),
              AllOf(HasSubstr("some.yaml:1: 'a': path: "), HasSubstr("ant_v5 does not exist"),
                    HasSubstr("relative to traj_dir"), HasSubstr("mujoco/ant_v4?")));
  EXPECT_THAT(open("a: {path: mujoco/ant_v4}\n"), HasSubstr("ant_v4 holds no file *.h5"));
  EXPECT_THAT(open("a: {path: mujoco/ant_v5, type: test}\n"),
              HasSubstr("found a list of tasks of which none has histories"));
}

}  // namespace
}  // namespace adtrain
