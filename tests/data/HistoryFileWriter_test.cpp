#include "data/HistoryFileWriter.h"

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/File.h"
#include "data/HistoryFile.h"
#include "data/HistorySamples.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

History task_history(int64_t task) {
  return random_history(30, 5, 10, 100 + static_cast<uint64_t>(task));
}

void write_tasks(HistoryFileWriter& writer, const std::vector<int64_t>& tasks) {
  for (const int64_t task : tasks) writer.write(task, task_history(task));
}

/// The bytes of a file of `tasks` tasks that was written in one go.
std::string whole_file(const fs::path& path, int64_t tasks) {
  HistoryFileWriter writer(path, NumberRanges::below(tasks), {});
  write_tasks(writer, writer.missing());
  writer.finish();
  return read_file(path);
}

std::string complaint(const fs::path& path, int64_t tasks, const HistoryFileWriter::Settings& settings) {
  try {
    HistoryFileWriter(path, NumberRanges::below(tasks), settings);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(HistoryFileWriter, NamesTheFileOnlyWhenItIsCompleteAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "deep" / "history.hdf5";
  HistoryFileWriter writer(path, NumberRanges::below(2), {});
  EXPECT_THAT(writer.missing(), ElementsAre(0, 1));
  write_tasks(writer, {1});
  EXPECT_THAT(writer.missing(), ElementsAre(0));
  EXPECT_FALSE(fs::exists(path));
  write_tasks(writer, {0});
  writer.finish();
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1);
  EXPECT_THAT(complaint(path, 2, {}), AllOf(HasSubstr("exists already"), HasSubstr("remove")));
}

TEST(HistoryFileWriter, ContinuesWithEqualBytesInAnyOrderAndFromManyThreads) {
  const TemporaryFolder folder;
  const std::string expected = whole_file(folder.path() / "whole.hdf5", 12);
  const fs::path path = folder.path() / "pieces.hdf5";
  {
    HistoryFileWriter writer(path, NumberRanges::below(12), {});
    write_tasks(writer, {11, 3, 0});
  }
  HistoryFileWriter writer(path, NumberRanges::below(12), {});
  EXPECT_THAT(writer.missing(), ElementsAre(1, 2, 4, 5, 6, 7, 8, 9, 10));
  std::vector<std::thread> threads;
  for (const int64_t task : writer.missing())
    threads.emplace_back([&writer, task] { write_tasks(writer, {task}); });
  for (std::thread& thread : threads) thread.join();
  writer.finish();
  EXPECT_EQ(read_file(path), expected);
}

TEST(HistoryFileWriter, MakesTasksWithDamagedOptimalActionsAgain) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "history.hdf5";
  const std::vector<int32_t> actions(150, 0x5a5a5a5a);  // as no other values are
  {
    HistoryFileWriter writer(path, NumberRanges::below(2), {});
    writer.write(1, task_history(1), actions);
  }
  EXPECT_THAT(HistoryFileWriter(path, NumberRanges::below(2), {}).missing(), ElementsAre(0)) << "it is whole";
  const fs::path part = path.string() + ".partial/1.hdf5";
  std::string bytes = read_file(part);
  const size_t place = bytes.find("ZZZZZZZZ");
  ASSERT_NE(place, std::string::npos);
  bytes[place] = 'Y';
  write_file(part, bytes);
  const HistoryFileWriter writer(path, NumberRanges::below(2), {});
  EXPECT_THAT(writer.missing(), ElementsAre(0, 1));
  EXPECT_THAT(writer.damages(), ElementsAre(AllOf(HasSubstr("1/optimal_actions"), HasSubstr("checksum"))));
}

TEST(HistoryFileWriter, RefusesToContinueWithOtherSettingsAndSaysWhich) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "history.hdf5";
  { HistoryFileWriter(path, NumberRanges::below(3), {{"n_steps", "20"}, {"gamma", "0.99"}}); }
  EXPECT_THAT(complaint(path, 3, {{"n_steps", "80"}, {"gamma", "0.99"}, {"kept_streams", "4"}}),
              AllOf(HasSubstr("history.hdf5.partial"), HasSubstr("n_steps was 20 and is 80"),
                    HasSubstr("kept_streams was absent and is 4"), Not(HasSubstr("gamma")),
                    HasSubstr("remove the folder")));
  EXPECT_THAT(complaint(path, 4, {{"n_steps", "20"}, {"gamma", "0.99"}}), HasSubstr("tasks was 3 and is 4"));
  write_file(folder.path() / "history.hdf5.partial" / "settings.json", "{");
  EXPECT_THAT(complaint(path, 3, {}), HasSubstr("settings.json"));
}

TEST(HistoryFileWriter, KeepsTheFileThatItReplacesUntilTheNewOneIsComplete) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "history.hdf5";
  write_file(path, "the former one");
  {
    HistoryFileWriter writer(path, NumberRanges::below(2), {{"n_steps", "20"}}, 0,
                             ExistingHistories::kReplace);
    write_tasks(writer, {1});
    EXPECT_EQ(read_file(path), "the former one");
  }
  EXPECT_THAT(complaint(path, 2, {{"n_steps", "20"}}), HasSubstr("exists already"));
  HistoryFileWriter writer(path, NumberRanges::below(2), {{"n_steps", "20"}}, 0, ExistingHistories::kReplace);
  EXPECT_THAT(writer.missing(), ElementsAre(0)) << "it continues";
  write_tasks(writer, {0});
  EXPECT_EQ(read_file(path), "the former one");
  writer.finish();
  EXPECT_EQ(HistoryFile(path).tasks().count(), 2);
  EXPECT_FALSE(fs::exists(path.string() + ".partial"));
}

TEST(HistoryFileWriter, ReplacingDropsWhatWasBegunWithOtherSettings) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "history.hdf5";
  {
    HistoryFileWriter writer(path, NumberRanges::below(2), {{"n_steps", "20"}});
    write_tasks(writer, {1});
  }
  const HistoryFileWriter writer(path, NumberRanges::below(2), {{"n_steps", "80"}}, 0,
                                 ExistingHistories::kReplace);
  EXPECT_THAT(writer.missing(), ElementsAre(0, 1));
}

TEST(HistoryFileWriter, WritesTheTasksThatItIsToHold) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "history.hdf5";
  {
    HistoryFileWriter writer(path, NumberRanges::of({3, 38}), {});
    EXPECT_THAT(writer.missing(), ElementsAre(3, 38));
    write_tasks(writer, {38});
  }
  EXPECT_THAT(complaint(path, 2, {}), HasSubstr("task_numbers was 3,38 and is absent"));
  HistoryFileWriter writer(path, NumberRanges::of({3, 38}), {});
  EXPECT_THAT(writer.missing(), ElementsAre(3)) << "it continues";
  write_tasks(writer, {3});
  writer.finish();
  const HistoryFile file(path);
  EXPECT_EQ(file.tasks().text(), "3,38");
  EXPECT_EQ(file.settings().at("tasks"), "2");
  EXPECT_EQ(file.settings().at("task_numbers"), "3,38");
  EXPECT_EQ(file.read(38, 30, 5, {.grid_size = 9, .num_actions = 5}).actions, task_history(38).actions);
}

TEST(HistoryFileWriter, MakesDamagedTasksAgainWhenItContinues) {
  const TemporaryFolder folder;
  const std::string expected = whole_file(folder.path() / "whole.hdf5", 5);
  const fs::path path = folder.path() / "damaged.hdf5";
  {
    HistoryFileWriter writer(path, NumberRanges::below(5), {});
    write_tasks(writer, {0, 1, 2, 3});
  }
  const auto spoil = [&](int task, size_t place, char value) {
    const fs::path part = path.string() + fmt::format(".partial/{}.hdf5", task);
    std::string bytes = read_file(part);
    bytes[place < bytes.size() ? place : bytes.size() / 2] = value;
    write_file(part, bytes);
  };
  spoil(1, 24, '\1');           // HDF5 1.10.8 dies of it
  spoil(3, 1'000'000, '\x55');  // a value in the middle
  HistoryFileWriter writer(path, NumberRanges::below(5), {});
  EXPECT_THAT(writer.missing(), ElementsAre(1, 3, 4));
  EXPECT_THAT(writer.damages(),
              ElementsAre(HasSubstr("1.hdf5"), AllOf(HasSubstr("3.hdf5"), HasSubstr("checksum"))));
  write_tasks(writer, writer.missing());
  writer.finish();
  EXPECT_EQ(read_file(path), expected);
}

TEST(HistoryFileWriter, APartThatIsDamagedInTheEndIsNamedAndTheOthersKept) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "history.hdf5", part = path.string() + ".partial/1.hdf5";
  HistoryFileWriter writer(path, NumberRanges::below(3), {});
  write_tasks(writer, {0, 1, 2});
  std::string bytes = read_file(part);
  bytes[24] = '\1';
  write_file(part, bytes);
  try {
    writer.finish();
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("1.hdf5"), HasSubstr("the same command continues")));
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(path.string() + ".partial/assembled.hdf5"));
  write_tasks(writer, {1});
  writer.finish();
  EXPECT_EQ(HistoryFile(path).tasks().count(), 3);
}

TEST(HistoryFileWriter, TellsTheFileHowItWasCollected) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "history.hdf5";
  HistoryFileWriter writer(path, NumberRanges::below(2),
                           {{"env", "darkroom"}, {"gamma", "0.99"}, {"nothing", ""}});
  write_tasks(writer, {0, 1});
  writer.finish();
  HistorySettings found = HistoryFile(path).settings();
  EXPECT_EQ(found["content_crc32"].size(), 8);
  found.erase("content_crc32");
  EXPECT_EQ(
      found,
      (HistorySettings{
          {"env", "darkroom"}, {"format_version", "1"}, {"gamma", "0.99"}, {"nothing", ""}, {"tasks", "2"}}));
}

/// A limit on the size of files stands in for a full disk.
TEST(HistoryFileWriter, AFullDiskIsADataErrorThatLosesNoTask) {
  const TemporaryFolder folder;
  const std::string expected = whole_file(folder.path() / "whole.hdf5", 4);
  const fs::path path = folder.path() / "full.hdf5";
  const auto in_a_child = [&](rlim_t most_bytes) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{most_bytes, most_bytes};
      setrlimit(RLIMIT_FSIZE, &limit);
      try {
        HistoryFileWriter writer(path, NumberRanges::below(4), {});
        write_tasks(writer, writer.missing());
        writer.finish();
      } catch (const DataError& error) {
        _exit(std::string(error.what()).find("finished tasks are kept") != std::string::npos ? 4 : 1);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  };
  const uintmax_t part = expected.size() / 4;
  EXPECT_EQ(in_a_child(part / 2), 4) << "no task fits";
  EXPECT_EQ(std::distance(fs::directory_iterator(path.string() + ".partial"), {}), 1) << "the settings alone";
  EXPECT_EQ(in_a_child(2 * part), 4) << "every task fits, the whole does not";
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(path.string() + ".partial/assembled.hdf5"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path.string() + ".partial"), {}), 5);
  EXPECT_EQ(in_a_child(RLIM_INFINITY), 0);
  EXPECT_EQ(read_file(path), expected);
}

TEST(HistoryFileWriter, LetsOneProcessAtATimeWork) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "history.hdf5";
  const HistoryFileWriter first(path, NumberRanges::below(3), {});
  EXPECT_THAT(complaint(path, 3, {}), HasSubstr("another process"));
}

TEST(HistoryFileWriter, CompressedArraysOfManyChunksReadAsTheyWere) {
  const TemporaryFolder folder;
  const auto written = [&](const char* name, int compression) {
    HistoryFileWriter writer(folder.path() / name, NumberRanges::below(1), {}, compression);
    writer.write(0, random_history(3001, 50, 10, 7));  // the last chunk is not full
    writer.finish();
    const HistoryFile file(folder.path() / name);
    return file.read(0, 3001, 50, {.grid_size = 9, .num_actions = 5});
  };
  const History plain = written("plain.hdf5", 0), compressed = written("compressed.hdf5", 1);
  EXPECT_EQ(compressed.states, plain.states);
  EXPECT_EQ(compressed.actions, plain.actions);
  EXPECT_EQ(compressed.rewards, plain.rewards);
  EXPECT_EQ(compressed.next_states, plain.next_states);
  EXPECT_EQ(compressed.dones, plain.dones);
  EXPECT_LT(3 * fs::file_size(folder.path() / "compressed.hdf5"),
            fs::file_size(folder.path() / "plain.hdf5"));
}

TEST(HistoryFileWriter, AFolderThatCannotBeWrittenIsADataError) {
  EXPECT_THAT(complaint("/proc/adtrain/history.hdf5", 3, {}),
              AllOf(HasSubstr("/proc/adtrain"), HasSubstr("traj_dir")));
}

/// Writes all tasks in a child process, which is killed after a while, until one child gets to the end.
TEST(HistoryFileWriter, SurvivesBeingKilledAtAnyMoment) {
  constexpr int64_t kTasks = 40;
  const TemporaryFolder folder;
  const std::string expected = whole_file(folder.path() / "whole.hdf5", kTasks);
  const fs::path path = folder.path() / "killed.hdf5";
  int kills = 0;
  for (useconds_t patience = 2'000; !fs::exists(path); patience = patience * 3 / 2) {
    ASSERT_LT(patience, 60'000'000) << "no child came to the end";
    const pid_t child = fork();
    if (child == 0) {
      HistoryFileWriter writer(path, NumberRanges::below(kTasks), {});
      write_tasks(writer, writer.missing());
      writer.finish();
      _exit(0);
    }
    usleep(patience);
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) ++kills;
  }
  EXPECT_GT(kills, 0);
  EXPECT_EQ(read_file(path), expected);
}

}  // namespace
}  // namespace adtrain
