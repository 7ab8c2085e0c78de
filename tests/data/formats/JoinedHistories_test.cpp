#include "data/formats/JoinedHistories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Random.h"
#include "data/MemoryHistories.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Two tasks, of which the second has this name.
std::unique_ptr<HistorySource> memory(const std::string& name) {
  auto source = std::make_unique<MemoryHistories>(
      std::vector<ColumnType>{{ColumnKind::kRewards, ElementType::kFloat32, {}}});
  source->add(0, 5);
  source->add(1, 6);
  source->task(1).name = name;
  return source;
}

JoinedHistories joined(const std::string& first_path, const std::string& first_task,
                       const std::string& second_path, const std::string& second_task) {
  std::vector<JoinedHistories::Part> parts;
  parts.push_back({first_path, memory(first_task)});
  parts.push_back({second_path, memory(second_task)});
  return JoinedHistories(std::move(parts));
}

TEST(JoinedHistories, NamesOfTasksDoNotClash) {
  const JoinedHistories source = joined("data/a.hdf5", "walk", "data/b.hdf5", "run");
  std::vector<std::string> names;
  for (const TaskHistories& task : source.tasks()) names.push_back(task.name);
  EXPECT_THAT(names, testing::ElementsAre("a task 0", "walk", "b task 0", "run"));
  EXPECT_EQ(source.path_of(1), "data/a.hdf5");
  EXPECT_EQ(source.path_of(2), "data/b.hdf5");
  EXPECT_EQ(joined("x/a.hdf5", "walk", "y/a.hdf5", "run").tasks()[2].name, "y/a.hdf5 task 0")
      << "files that are called alike are told by their folders";
  try {
    joined("data/a.hdf5", "walk", "data/b.hdf5", "walk");
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("data/a.hdf5 and data/b.hdf5 both have a task 'walk'"),
                                    HasSubstr("leave one out")));
  }
}

TEST(JoinedHistories, AreReadAsEachAlone) {
  const WrittenHistories& xland = WrittenHistories::get("xland");
  RandomStream random(xland.seed);
  const std::vector<std::filesystem::path> paths = {WrittenHistories::get("vintix").path, xland.path,
                                                    WrittenHistories::get("odd0").path};
  constexpr size_t kCache = 50000;
  const auto all = HistorySource::open_all(paths, {.format = {}, .cache_bytes = kCache});
  EXPECT_EQ(all->format_names(), "vintix and xland and adtrain");
  EXPECT_THAT(all->description(), HasSubstr("3 paths; a folder a task, a file a history; one group a task"));
  size_t task = 0, groups = 0;
  for (const std::filesystem::path& path : paths) {
    const auto alone = HistorySource::open(path);
    for (size_t i = 0; i < alone->tasks().size(); ++i, ++task) {
      EXPECT_EQ(all->path_of(task), path.string());
      EXPECT_EQ(all->tasks().at(task).steps, alone->tasks()[i].steps);
      EXPECT_EQ(all->tasks()[task].group, groups + alone->tasks()[i].group);
      const int64_t steps = alone->tasks()[i].steps.back();
      const size_t history = alone->tasks()[i].steps.size() - 1;
      for (int window = 0; window < 10; ++window) {
        const int64_t first = random.below(steps), count = random.below(steps - first + 1);
        const HistoryWindow found = all->window(task, history, first, count);
        const HistoryWindow expected = alone->window(i, history, first, count);
        ASSERT_EQ(found.columns.size(), expected.columns.size());
        for (size_t column = 0; column < found.columns.size(); ++column)
          EXPECT_EQ(found.columns[column].bytes, expected.columns[column].bytes);
      }
      EXPECT_LE(all->cached_bytes(), kCache) << "of all paths together";
    }
    groups += alone->groups().size();
  }
  EXPECT_EQ(all->tasks().size(), task);
  EXPECT_EQ(all->groups().size(), groups);
}

}  // namespace
}  // namespace adtrain
