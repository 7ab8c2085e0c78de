#include "data/formats/TaskGroupHistories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Python that writes a file of 3 tasks of 3 streams × 300 steps, and runs a line for each task's group `g`.
std::string tasks(const fs::path& path, const std::string& root, const std::string& line) {
  return fmt::format(R"(
with h5py.File('{}', 'w') as f:
    f.attrs.update({})
    for task in range(3):
        g = f.create_group(str(task))
        g['states'] = np.zeros((3, 300, 4), 'f4')
        g['actions'] = np.zeros((3, 300), 'u1')
        g['rewards'] = np.zeros((3, 300), 'f4')
        {}
)",
                     path.string(), root, line);
}

constexpr const char* kVersion2 = "{'adtrain-format': 2, 'axes': 'stream,time'}";

std::string complaint(const fs::path& path, const HistorySourceOptions& options = {}) {
  try {
    HistorySource::open(path, options);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

std::vector<int64_t> numbers_of(const HistorySource& source) {
  std::vector<int64_t> numbers;
  for (const TaskHistories& task : source.tasks()) numbers.push_back(task.number);
  return numbers;
}

TEST(TaskGroupHistories, RewardsAndEndsAreOneNumberAStep) {
  const TemporaryFolder folder;
  const char* const columns[] = {"rewards", "dones", "terminations", "truncations", "step_num"};
  std::string lines;
  const auto file = [&](const char* column, int numbers) {
    return folder.path() / fmt::format("{}{}.hdf5", column, numbers);
  };
  for (const char* column : columns) {
    for (const int numbers : {1, 2}) {
      lines +=
          tasks(file(column, numbers), kVersion2,
                fmt::format("g.pop('{0}', None); g['{0}'] = np.ones((3, 300, {1}), 'u1')", column, numbers));
    }
  }
  lines += tasks(folder.path() / "vectors.hdf5", kVersion2,
                 "g['next_states'] = g['states'][()]; g['expert_actions'] = np.zeros((3, 300, 2))");
  run_python(lines);
  for (const char* column : columns) {
    EXPECT_THAT(complaint(file(column, 2)),
                HasSubstr(fmt::format("{}2.hdf5: data set 0/{} has shape (3, 300, 2); expected one number a "
                                      "step: (3, 300); write the number that counts",
                                      column, column)));
    EXPECT_EQ(complaint(file(column, 1)), "no complaint");
  }
  EXPECT_EQ(complaint(folder.path() / "vectors.hdf5"), "no complaint");
}

TEST(TaskGroupHistories, RulesetsNumberXlandsTasksAlone) {
  const TemporaryFolder folder;
  const fs::path xland = folder.path() / "xland.hdf5", ours = folder.path() / "ours.hdf5";
  run_python(tasks(xland, "{}", "g.attrs['ruleset-id'] = 50 - task") +
             tasks(ours, kVersion2, "g.attrs['ruleset-id'] = 5"));
  EXPECT_THAT(numbers_of(*HistorySource::open(xland)), ElementsAre(50, 49, 48));
  const auto source = HistorySource::open(ours);
  EXPECT_THAT(numbers_of(*source), ElementsAre(0, 1, 2)) << "those of the groups";
  EXPECT_EQ(source->tasks()[2].name, "task 2");
  EXPECT_EQ(source->tasks()[2].attributes.at("ruleset-id"), "5");
}

TEST(TaskGroupHistories, XlandsTasksAreThereOnce) {
  const TemporaryFolder folder;
  const fs::path twice = folder.path() / "twice.hdf5", sizes = folder.path() / "sizes.hdf5";
  run_python(
      tasks(twice, "{}",
            "g.attrs.update({'env-id': 'R1-9x9', 'benchmark-id': 'a', 'ruleset-id': 7 if task else 4})") +
      tasks(sizes, "{}", "g.attrs.update({'env-id': f'R1-{task}x{task}', 'ruleset-id': 7})"));
  EXPECT_THAT(complaint(twice),
              HasSubstr("twice.hdf5: groups 1 and 2 both are task 'R1-9x9 ruleset 7'; expected each"));
  EXPECT_EQ(complaint(sizes), "no complaint") << "other environments";
}

TEST(TaskGroupHistories, AnExpectedFormatIsNotForcedOnAnother) {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return folder.path() / name; };
  run_python(tasks(file("ours.hdf5"), kVersion2, "g.attrs['ruleset-id'] = task") +
             tasks(file("old.hdf5"), "{}", "g['next_states'] = g['states'][()]") +
             tasks(file("xland.hdf5"), "{}", "g.attrs['ruleset-id'] = task") +
             tasks(file("bare.hdf5"), "{}", "pass"));
  const HistorySourceOptions as_xland{.format = HistoryFormat::kXland},
      as_adtrain{.format = HistoryFormat::kAdtrain}, as_vintix{.format = HistoryFormat::kVintix};
  EXPECT_THAT(complaint(file("ours.hdf5"), as_xland),
              HasSubstr("ours.hdf5: found adtrain version 2 (the attribute adtrain-format of the root); "
                        "expected histories of the format xland"));
  EXPECT_THAT(complaint(file("ours.hdf5"), as_vintix), HasSubstr("found adtrain version 2"));
  EXPECT_THAT(complaint(file("old.hdf5"), as_xland),
              HasSubstr("found adtrain version 1 (next_states in group 0); expected histories"));
  EXPECT_THAT(complaint(file("xland.hdf5"), as_adtrain),
              HasSubstr("found xland (the attribute ruleset-id of group 0); expected histories of the format "
                        "adtrain"));
  EXPECT_EQ(complaint(file("ours.hdf5"), as_adtrain), "no complaint");
  EXPECT_EQ(complaint(file("old.hdf5"), as_adtrain), "no complaint");
  EXPECT_EQ(complaint(file("xland.hdf5"), as_xland), "no complaint");
  EXPECT_EQ(HistorySource::open(file("bare.hdf5"), as_xland)->format(), HistoryFormat::kXland)
      << "without a mark it is read as what is expected";
  EXPECT_THAT(complaint(file("bare.hdf5")), HasSubstr("without next_states in group 0"));
}

TEST(TaskGroupHistories, TasksOfVersion2AreNamedByPlainNumbers) {
  const TemporaryFolder folder;
  std::string lines;
  const auto file = [&](const std::string& name) { return folder.path() / (name + ".hdf5"); };
  for (const char* name : {"walker", "01", "-1"}) {
    lines += tasks(file(name), kVersion2, "pass") +
             fmt::format("h5py.File('{}', 'r+').move('1', '{}')\n", file(name).string(), name);
  }
  lines += tasks(file("all"), kVersion2, "f.move(str(task), f'task{task}')");
  lines += tasks(file("notes"), kVersion2, "pass") + fmt::format(
                                                         "with h5py.File('{}', 'r+') as f:\n"
                                                         "    f['readme'] = np.zeros(3)\n"
                                                         "    f['meta/sources'] = np.zeros(3)\n"
                                                         "    f['link'] = h5py.SoftLink('/nowhere')\n",
                                                         file("notes").string());
  lines += tasks(file("version1"), "{}", "g['next_states'] = g['states'][()]") +
           fmt::format("h5py.File('{}', 'r+').move('1', 'walker')\n", file("version1").string());
  run_python(lines);
  for (const char* name : {"walker", "01", "-1"}) {
    EXPECT_THAT(
        complaint(file(name)),
        AllOf(HasSubstr(fmt::format("{}.hdf5: found a group '{}' with columns of a task; expected plain "
                                    "numbers as the names of tasks' groups: 0, 1, …",
                                    name, name)),
              HasSubstr(fmt::format("file.move('{}', '3')", name))));
  }
  EXPECT_THAT(complaint(file("all")), AllOf(HasSubstr("found the groups 'task0', 'task1', 'task2' with"),
                                            HasSubstr("expected plain numbers")));
  EXPECT_EQ(complaint(file("notes")), "no complaint") << "what holds no columns may be there";
  EXPECT_THAT(numbers_of(*HistorySource::open(file("version1"))), ElementsAre(0, 2))
      << "of version 1 what else is there is ignored";
}

/// What reading the first steps of task 1 complains about.
std::string complaint_of_task1(const fs::path& path) {
  try {
    HistorySource::open(path)->window(1, 0, 0, 10);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(TaskGroupHistories, TheDataSetThatDiffersFromMostIsNamed) {
  const TemporaryFolder folder;
  const fs::path actions = folder.path() / "actions.hdf5", rewards = folder.path() / "rewards.hdf5";
  const auto shorter = [](const char* name) {
    return fmt::format(
        "g['dones'] = np.zeros((3, 300), '?')\n"
        "        if task == 1: del g['{0}']; g['{0}'] = np.zeros((3, 299), '{1}')",
        name, std::string(name) == "actions" ? "u1" : "f4");
  };
  run_python(tasks(actions, kVersion2, shorter("actions")) + tasks(rewards, kVersion2, shorter("rewards")));
  EXPECT_THAT(complaint_of_task1(actions),
              HasSubstr("data set 1/actions is uint8 (3, 299); expected uint8 (3, 300), as 3 of the 4 data "
                        "sets of its group begin"));
  EXPECT_THAT(complaint_of_task1(rewards),
              HasSubstr("data set 1/rewards is float32 (3, 299); expected float32 (3, 300), by the other"));
}

TEST(TaskGroupHistories, AColumnUnderAnotherNameIsFound) {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return folder.path() / name; };
  run_python(tasks(file("second.hdf5"), kVersion2, "if task == 1: f.move('1/rewards', '1/reward')") +
             tasks(file("first.hdf5"), kVersion2, "f.move(f'{task}/rewards', f'{task}/reward')") +
             tasks(file("none.hdf5"), kVersion2, "if task == 1: del g['rewards']") +
             tasks(file("xland.hdf5"), "{}",
                   "g.attrs['ruleset-id'] = task\n        if task == 1: del g['rewards']"));
  EXPECT_THAT(
      complaint_of_task1(file("second.hdf5")),
      AllOf(HasSubstr("group 1 has no rewards; expected them as in the other groups; it has 'reward': "
                      "if that is meant, rename it, as h5py does with file.move('1/reward', "
                      "'1/rewards')"),
            Not(HasSubstr("fetch"))));
  EXPECT_THAT(complaint(file("first.hdf5")),
              HasSubstr("in its root without rewards in group 0: it has 'reward'"));
  EXPECT_THAT(complaint_of_task1(file("none.hdf5")),
              AllOf(HasSubstr("group 1 has no rewards"), HasSubstr("write them in this group, too"),
                    Not(HasSubstr("fetch"))));
  EXPECT_THAT(complaint_of_task1(file("xland.hdf5")), HasSubstr("fetch the file again"));
}

TEST(TaskGroupHistories, WhereAxesAreNotSaidAndLookExchangedADoubtIsSaid) {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return folder.path() / name; };
  run_python(tasks(file("silent.hdf5"), "{'adtrain-format': 2}", "pass") +
             tasks(file("said.hdf5"), "{'adtrain-format': 2, 'axes': 'time,stream'}", "pass") +
             tasks(file("right.hdf5"), kVersion2, "pass"));
  EXPECT_THAT(HistorySource::open(file("silent.hdf5"))->doubt(0),
              AllOf(HasSubstr("no attribute axes, which then is time,stream, and 3 steps of 300 streams"),
                    HasSubstr("file.attrs['axes'] = 'stream,time'")));
  EXPECT_EQ(HistorySource::open(file("said.hdf5"))->doubt(0), "");
  EXPECT_EQ(HistorySource::open(file("right.hdf5"))->doubt(0), "");
}

}  // namespace
}  // namespace adtrain
