#include "data/HistoryFileWriter.h"

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
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
  HistoryFileWriter writer(path, tasks, {});
  write_tasks(writer, writer.missing());
  writer.finish();
  return read_file(path);
}

std::string complaint(const fs::path& path, int64_t tasks, const HistoryFileWriter::Settings& settings) {
  try {
    HistoryFileWriter(path, tasks, settings);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(HistoryFileWriter, NamesTheFileOnlyWhenItIsCompleteAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "deep" / "history.hdf5";
  HistoryFileWriter writer(path, 2, {});
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
    HistoryFileWriter writer(path, 12, {{"n_steps", "20"}});
    write_tasks(writer, {11, 3, 0});
  }
  HistoryFileWriter writer(path, 12, {{"n_steps", "20"}});
  EXPECT_THAT(writer.missing(), ElementsAre(1, 2, 4, 5, 6, 7, 8, 9, 10));
  std::vector<std::thread> threads;
  for (const int64_t task : writer.missing())
    threads.emplace_back([&writer, task] { write_tasks(writer, {task}); });
  for (std::thread& thread : threads) thread.join();
  writer.finish();
  EXPECT_EQ(read_file(path), expected);
}

TEST(HistoryFileWriter, RefusesToContinueWithOtherSettingsAndSaysWhich) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "history.hdf5";
  { HistoryFileWriter(path, 3, {{"n_steps", "20"}, {"gamma", "0.99"}}); }
  EXPECT_THAT(
      complaint(path, 3, {{"n_steps", "80"}, {"gamma", "0.99"}, {"alg", "PPO"}}),
      AllOf(HasSubstr("history.hdf5.partial"), HasSubstr("n_steps was 20 and is 80"),
            HasSubstr("alg was absent and is PPO"), Not(HasSubstr("gamma")), HasSubstr("remove the folder")));
  EXPECT_THAT(complaint(path, 4, {{"n_steps", "20"}, {"gamma", "0.99"}}), HasSubstr("tasks was 3 and is 4"));
  write_file(folder.path() / "history.hdf5.partial" / "settings.json", "{");
  EXPECT_THAT(complaint(path, 3, {}), HasSubstr("settings.json"));
}

TEST(HistoryFileWriter, LetsOneProcessAtATimeWork) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "history.hdf5";
  const HistoryFileWriter first(path, 3, {});
  EXPECT_THAT(complaint(path, 3, {}), HasSubstr("another process"));
}

TEST(HistoryFileWriter, CompressedArraysOfManyChunksReadAsTheyWere) {
  const TemporaryFolder folder;
  const auto written = [&](const char* name, int compression) {
    HistoryFileWriter writer(folder.path() / name, 1, {}, compression);
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
      HistoryFileWriter writer(path, kTasks, {});
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
