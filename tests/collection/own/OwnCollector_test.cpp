#include "collection/own/OwnCollector.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "collection/own/LearntLessons.h"
#include "data/formats/HistorySource.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using OwnCollectorTest = WorkerTest;

EnvironmentOptions label() {
  EnvironmentOptions options;
  options.env = "lessons";
  return options;
}

CollectionOptions small_collection(int64_t threads) {
  CollectionOptions options;
  options.n_stream = 4;
  options.n_steps = 16;
  options.batch_size = 32;
  options.n_epochs = 2;
  options.total_source_timesteps = 600;
  options.n_process = threads;
  options.alg_seed = 7;
  return options;
}

OwnCollector collector_of(const std::string& function, int64_t threads, int64_t workers = 1,
                          const TaskOptions& tasks = TaskOptions()) {
  const WorkerOptions options = lessons(function, workers);
  static const WorkerHello names = WorkerPool(lessons("make_names"), {}).hello();
  const WorkerHello hello = function == "make_names" ? names : WorkerPool(options, {}).hello();
  return {label(), small_collection(threads), options, hello, tasks};
}

std::string collected(const fs::path& file, const OwnCollector& collector) {
  EXPECT_TRUE(collector.run(file));
  return read_file(file);
}

TEST_F(OwnCollectorTest, WritesAFileOfAnySpaceThatSaysWhatItHolds) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "h.hdf5";
  const OwnCollector collector = collector_of("make_pairs", 2);
  std::vector<int64_t> told;
  CollectionListener listener;
  listener.progress = [&told](const CollectionProgress& progress) { told.push_back(progress.tasks_done); };
  ASSERT_TRUE(collector.run(file, listener));
  EXPECT_THAT(told, ElementsAre(1, 2, 3));
  EXPECT_EQ(collector.file_bytes(), 3 * 4 * 160 * (2 + 4 + 6));
  const auto source = HistorySource::open(file);
  ASSERT_EQ(source->tasks().size(), 3);
  EXPECT_EQ(source->tasks()[2].name, "high");
  EXPECT_EQ(source->tasks()[2].steps, std::vector<int64_t>(4, 160));
  EXPECT_THAT(source->tasks()[2].attributes, testing::Contains(testing::Key("expert-score")));
  const SpaceGroup& group = source->groups().front();
  EXPECT_EQ(group.observation->text(), "MultiDiscrete((2,), values 2, 3)");
  EXPECT_EQ(group.observation->type, ElementType::kUint8);
  EXPECT_EQ(group.action->type, ElementType::kInt16);
  EXPECT_EQ(group.find(ColumnKind::kObservations)->type, ElementType::kUint8);
}

/// By chance a third of eight steps pays.
TEST_F(OwnCollectorTest, MeasuresTheRandomReturnOnRequestAndLearnsTheSame) {
  const TemporaryFolder folder;
  collected(folder.path() / "plain.hdf5", collector_of("make_names", 1));
  WorkerOptions workers = lessons("make_names", 2);
  workers.env_random_episodes = 401;
  workers.env_group = "lessons";
  const OwnCollector collector(label(), small_collection(1), workers, WorkerPool(workers, {}).hello(), {});
  collected(folder.path() / "measured.hdf5", collector);
  const auto plain = HistorySource::open(folder.path() / "plain.hdf5"),
             measured = HistorySource::open(folder.path() / "measured.hdf5");
  EXPECT_EQ(plain->groups().front().name, "");
  EXPECT_EQ(measured->groups().front().name, "lessons");
  for (size_t task = 0; task < 3; ++task) {
    EXPECT_FALSE(plain->tasks()[task].attributes.contains("random-score"));
    EXPECT_NEAR(std::stod(measured->tasks()[task].attributes.at("random-score")), 8 / 3.0, 0.35);
    EXPECT_EQ(measured->window(task, 2, 0, 160).columns[1].bytes,
              plain->window(task, 2, 0, 160).columns[1].bytes);
  }
}

TEST_F(OwnCollectorTest, NeitherThreadsNorWorkersNorOtherTasksChangeATask) {
  const TemporaryFolder folder;
  const std::string one = collected(folder.path() / "one.hdf5", collector_of("make_names", 1));
  EXPECT_EQ(collected(folder.path() / "three.hdf5", collector_of("make_names", 3, 2)), one);
  collected(folder.path() / "some.hdf5", collector_of("make_names", 1, 1, {.tasks = "2", .train_tasks = {}}));
  const auto all = HistorySource::open(folder.path() / "one.hdf5"),
             some = HistorySource::open(folder.path() / "some.hdf5");
  ASSERT_EQ(some->tasks().size(), 1);
  EXPECT_EQ(some->tasks()[0].number, 2);
  for (size_t i = 0; i < all->groups()[0].columns.size(); ++i)
    EXPECT_EQ(some->window(0, 1, 0, 160).columns[i].bytes, all->window(2, 1, 0, 160).columns[i].bytes);
}

TEST_F(OwnCollectorTest, ContinuesAfterAStopToTheSameFile) {
  const TemporaryFolder folder;
  const std::string expected = collected(folder.path() / "whole.hdf5", collector_of("make_names", 1));
  const fs::path file = folder.path() / "stopped.hdf5";
  std::atomic<bool> enough = false;
  std::vector<int64_t> told;
  double mean = 0;
  CollectionListener listener;
  listener.stop = [&enough] { return enough.load(); };
  listener.progress = [&](const CollectionProgress& progress) {
    told.push_back(progress.tasks_done);
    mean = progress.mean_final_return;
    enough = true;
  };
  const bool complete = collector_of("make_names", 1).run(file, listener);
  if (!complete) {  // else the others were learnt while this one was told
    listener.stop = {};
    EXPECT_TRUE(collector_of("make_names", 2).run(file, listener));
  }
  EXPECT_THAT(told, ElementsAre(1, 2, 3)) << "finished tasks are not learnt again";
  EXPECT_EQ(read_file(file), expected);
  double sum = 0;
  const auto source = HistorySource::open(file);
  for (const TaskHistories& task : source->tasks()) sum += std::stod(task.attributes.at("expert-score"));
  EXPECT_NEAR(mean, sum / 3, 1e-9) << "over the tasks of both calls";
}

TEST_F(OwnCollectorTest, AFaultIsToldAndFinishedTasksAreKept) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "h.hdf5";
  try {
    collector_of("make_failing", 1).run(file);
    FAIL() << "expected a WorkerFault";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("task 2 (high), place 0, episode 1, step 1"),
                                    HasSubstr("ZeroDivisionError")));
  }
  EXPECT_FALSE(fs::exists(file));
  EXPECT_TRUE(fs::exists(file.string() + ".partial/0.hdf5"));
  EXPECT_TRUE(fs::exists(file.string() + ".partial/1.hdf5"));
}

/// Its last task fails, when the others are finished.
constexpr const char* kEdited = R"(
import os
import lessons

TASKS = os.environ["EDITED_TASKS"].split()


def make_edited(task, seed):
    environment = lessons.Names("low")
    if task == TASKS[-1]:
        environment.reward = lambda action: 1 // 0
    return environment
)";

TEST_F(OwnCollectorTest, TasksThatWereEditedAreNotMixed) {
  const TemporaryFolder folder;
  write_file(folder.path() / "edited.py", kEdited);
  const fs::path file = folder.path() / "h.hdf5";
  const auto collect = [&](const char* tasks, ExistingHistories existing = ExistingHistories::kRefuse) {
    WorkerOptions options = lessons("make_edited");
    options.env_worker = "edited:make_edited";
    setenv("PYTHONPATH", (folder.path().string() + ":" + std::getenv("PYTHONPATH")).c_str(), 1);
    setenv("EDITED_TASKS", tasks, 1);
    const WorkerHello hello = WorkerPool(options, {}).hello();
    try {
      OwnCollector(label(), small_collection(1), options, hello, {}).run(file, {}, existing);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("complete");
  };
  EXPECT_THAT(collect("low middle high"), HasSubstr("ZeroDivisionError"));
  const std::string finished = read_file(HistoryFileWriter::task_file(file, 0));
  EXPECT_THAT(
      collect("new low middle"),
      AllOf(HasSubstr("h.hdf5.partial: a file was begun there with other tasks of edited:make_edited"),
            HasSubstr("task 0 was 'low' and is 'new', task 1 was 'middle' and is 'low'; expected"),
            HasSubstr("--overwrite")));
  EXPECT_THAT(collect("low middle new"), HasSubstr("ZeroDivisionError")) << "the third was not finished";
  EXPECT_EQ(read_file(HistoryFileWriter::task_file(file, 0)), finished);
  EXPECT_THAT(collect("new low middle", ExistingHistories::kReplace), HasSubstr("ZeroDivisionError"));
  EXPECT_EQ(read_finished(file, NumberRanges::below(2)).at(0).name, "new") << "learnt anew";
}

TEST_F(OwnCollectorTest, RefusesTasksAndSpacesThatCannotBeLearnt) {
  EXPECT_THROW(collector_of("make_names", 1, 1, {.tasks = "1-3", .train_tasks = {}}), ConfigError);
  EXPECT_THROW(collector_of("make_whole_box", 1), ConfigError);
}

}  // namespace
}  // namespace adtrain
