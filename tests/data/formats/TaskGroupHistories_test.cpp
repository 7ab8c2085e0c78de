#include "data/formats/TaskGroupHistories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

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

std::string complaint(const fs::path& path) {
  try {
    HistorySource::open(path);
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

}  // namespace
}  // namespace adtrain
