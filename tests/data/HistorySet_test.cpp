#include "data/HistorySet.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "data/HistoryFileWriter.h"
#include "data/HistorySamples.h"
#include "data/HistorySetReader.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TaskFamily small_family() {
  EnvironmentOptions options;
  options.grid_size = 3;
  options.horizon = 6;
  return TaskFamily::of(options);
}

/// A file of the nine tasks of a small room, 24 steps × 2 streams, lived with random numbers of `seed`.
struct SmallFile {
  explicit SmallFile(uint64_t seed = 1, int compression = 0) {
    const TaskFamily family = small_family();
    HistoryFileWriter writer(path, NumberRanges::below(family.task_count()),
                             {{"horizon", "6"}, {"alg_seed", "0"}}, compression);
    for (int64_t task = 0; task < family.task_count(); ++task) {
      writer.write(task, lived_history(family, task, 24, 2, seed + static_cast<uint64_t>(task)));
    }
    writer.finish();
  }
  HistorySet load(const std::vector<int64_t>& tasks, const HistorySettings& settings = {}) const {
    return HistorySet::load(
        path, {.tasks = tasks, .steps = 24, .streams = 2, .family = small_family(), .settings = settings});
  }

  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "history.hdf5";
};

TEST(HistorySet, TheDigestTellsValuesAndTheirOrderApart) {
  const SmallFile file, same, other(2);
  const std::string digest = file.load({0, 1, 2}).digest();
  EXPECT_EQ(digest.size(), 16);
  EXPECT_EQ(same.load({0, 1, 2}).digest(), digest);
  EXPECT_NE(other.load({0, 1, 2}).digest(), digest);
  EXPECT_NE(file.load({0, 2, 1}).digest(), digest);
  EXPECT_NE(file.load({0, 1}).digest(), digest);

  std::vector<Transition> transitions(8);
  const std::string zeros = HistorySet(4, transitions).digest();
  EXPECT_NE(HistorySet(2, transitions).digest(), zeros);
  transitions[5].reward = 1;
  EXPECT_NE(HistorySet(4, transitions).digest(), zeros);
}

/// As processes that share memory read it.
TEST(HistorySet, IsTheSameWhereSeveralReadSomeTasksEach) {
  const SmallFile file;
  const std::vector<int64_t> tasks = {0, 8, 3, 5, 2};
  const HistorySet alone = file.load(tasks);
  for (const size_t sharers : {1, 2, 3, 7}) {
    const HistorySetReader reader(
        file.path, {.tasks = tasks, .steps = 24, .streams = 2, .family = small_family(), .settings = {}});
    SharedBytes memory = own_bytes(reader.bytes());
    memory.sharers = sharers;
    size_t read = 0;
    for (memory.sharer = 0; memory.sharer + 1 < sharers; ++memory.sharer)
      reader.read(memory, [&] { ++read; });
    if (sharers > 1 && sharers <= tasks.size()) {
      EXPECT_NE(reader.read({memory.bytes, 99, 100}).digest(), alone.digest()) << "one has not read yet";
    }
    const HistorySet together = reader.read(memory, [&] { ++read; });
    EXPECT_EQ(together.digest(), alone.digest());
    EXPECT_EQ(together.file_checksum(), alone.file_checksum());
    EXPECT_EQ(read, tasks.size());
  }
}

TEST(HistorySet, TheFilesChecksumIsThatOfAllTasksAndTheValuesAlone) {
  const SmallFile file, compressed(1, 6), other(2);
  const std::string checksum = file.load({0, 1}).file_checksum();
  EXPECT_EQ(checksum.size(), 8);
  EXPECT_EQ(file.load({4, 5, 6}).file_checksum(), checksum);
  EXPECT_EQ(compressed.load({0}).file_checksum(), checksum);
  EXPECT_NE(other.load({0, 1}).file_checksum(), checksum);
}

TEST(HistorySet, RefusesAFileThatWasCollectedWithOtherSettings) {
  const SmallFile file;
  EXPECT_NO_THROW(file.load({0}, {{"horizon", "6"}, {"alg_seed", "0"}, {"history_compression", "3"}}));
  try {
    file.load({0}, {{"horizon", "30"}, {"alg_seed", "0"}, {"kept_streams", "2"}});
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(
        error.what(),
        AllOf(HasSubstr("history.hdf5: was collected with horizon 6 (the configuration says 30)"),
              HasSubstr("kept_streams absent (the configuration says 2)"), HasSubstr("--set horizon=6"),
              HasSubstr("--set kept_streams=null"), HasSubstr("--overwrite"), Not(HasSubstr("alg_seed 0"))));
  }
}

TEST(HistorySet, NamesTheTasksThatTheFileLacks) {
  const SmallFile file;
  try {
    file.load({3, 11, 4, 9, 10});
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("history.hdf5 holds the tasks 0-8, and 9-11 are asked for too"),
                                    HasSubstr("train_tasks"), HasSubstr("env, grid_size"),
                                    HasSubstr("adtrain collect --overwrite")));
  }
}

TEST(HistorySet, RefusesTransitionsThatAreNotTheFamilys) {
  EnvironmentOptions options;
  options.env = "darkroompermuted";
  options.grid_size = 3;
  options.horizon = 6;
  const SmallFile file;
  try {
    HistorySet::load(
        file.path,
        {.tasks = {3}, .steps = 24, .streams = 2, .family = TaskFamily::of(options), .settings = {}});
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("history.hdf5: task 3, stream 0, step 0"),
                                    HasSubstr("an episode started at (1, 1), expected (0, 0)")));
  }
}

}  // namespace
}  // namespace adtrain
