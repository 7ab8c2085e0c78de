#include "run/RunLifecycle.h"

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "collectives/SingleCommunicator.h"
#include "run/OverwrittenRun.h"
#include "run/TrainedRun.h"
#include "support/FullDisk.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// One start of a run in a folder of its own.
class RunLifecycleTest : public testing::Test {
 protected:
  RunLifecycleTest() {
    config_.run.runs_dir = folder_.path().string();
    config_.run.run_name = "small";
    ranks_.communicator = std::make_unique<SingleCommunicator>(at::kCPU);
  }

  std::unique_ptr<RunLifecycle> start(const RunLifecycle::Wish& wish = {}) {
    auto life = std::make_unique<RunLifecycle>(config_, wish, ranks_, console_);
    life->claim();
    return life;
  }
  fs::path file(const std::string& name) const { return folder_.path() / "small" / name; }
  Snapshot snapshot(const RunLifecycle& life, int64_t step, int64_t elements = 8) const {
    Snapshot snapshot;
    snapshot.step = step;
    snapshot.model = {{"weight", at::randn({elements})}};
    snapshot.optimizer = {{"step", at::tensor(static_cast<double>(step))}};
    snapshot.state = life.origin();
    return snapshot;
  }
  void save_through_a_full_disk(RunLifecycle& life, int64_t step, bool leaving) const {
    const FileSizeLimit limit(20'000);
    life.save(snapshot(life, step, 100'000), leaving);
  }

  TemporaryFolder folder_;
  RunConfig config_;
  Ranks ranks_;
  Console console_{{.enabled = false}};
};

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
    return "none";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

TEST_F(RunLifecycleTest, EndsWithTheCodeThatTheDiskBearsOut) {
  auto life = start();
  EXPECT_EQ(life->safe_step(), std::nullopt);
  life->save(snapshot(*life, 5), /*leaving=*/true);
  EXPECT_EQ(life->safe_step(), 5);
  EXPECT_EQ(life->end(Trainer::End::kStopped, 5), ExitCode::kRequeue);
  EXPECT_TRUE(fs::exists(file("requeue")));
  EXPECT_EQ(RunState::read(file("state.json"))->stage, RunState::Stage::kStopped);
  life.reset();
  EXPECT_FALSE(fs::exists(file("lock")));

  life = start({.resume = true});
  EXPECT_FALSE(fs::exists(file("requeue")));
  EXPECT_EQ(life->resumed()->step, 5);
  EXPECT_EQ(RunState::read(file("state.json"))->stage, RunState::Stage::kTraining);
  life->save(snapshot(*life, 9), /*leaving=*/true);
  EXPECT_EQ(life->end(Trainer::End::kFinished, 9), ExitCode::kDone);
  EXPECT_EQ(RunState::read(file("state.json"))->stage, RunState::Stage::kFinished);
}

TEST_F(RunLifecycleTest, UnderTorchrunTheMarkerStandsForTheCode) {
  ranks_.context.launcher = Launcher::kTorchrun;
  const auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/true);
  EXPECT_EQ(life->end(Trainer::End::kStopped, 5), ExitCode::kDone);
  EXPECT_TRUE(fs::exists(file("requeue")));
}

TEST_F(RunLifecycleTest, ALastStepThatDoesNotStandOrVerifyIsAnError) {
  const auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/false);
  life->save(snapshot(*life, 9), /*leaving=*/true);
  const fs::path weights = file("checkpoints/step-9/model.safetensors");
  std::string bytes = read_file(weights);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(weights, bytes);
  for (const Trainer::End how : {Trainer::End::kStopped, Trainer::End::kFinished}) {
    EXPECT_THAT(failure_of([&] { life->end(how, 9); }),
                AllOf(HasSubstr("step 9 was NOT saved"), HasSubstr("checksum"), HasSubstr("Step 5 is safe")));
  }
  fs::remove_all(file("checkpoints"));
  EXPECT_THAT(failure_of([&] { life->end(Trainer::End::kStopped, 9); }),
              HasSubstr("No step of this run is safe"));
  EXPECT_FALSE(fs::exists(file("requeue")));
  EXPECT_EQ(RunState::read(file("state.json"))->stage, RunState::Stage::kTraining);
}

TEST_F(RunLifecycleTest, AFailedSaveIsTriedAgainAfterAPauseAndWhereThereIsRoom) {
  const auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/false);
  EXPECT_FALSE(life->wants_step()) << "all is saved";
  save_through_a_full_disk(*life, 10, /*leaving=*/false);
  EXPECT_EQ(life->safe_step(), 5);
  EXPECT_FALSE(life->wants_step()) << "not in every step";
  bool wants = false;
  for (int look = 0; look < 600 && !wants; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    wants = life->wants_step();
  }
  ASSERT_TRUE(wants);
  life->save(snapshot(*life, 13), /*leaving=*/false);
  EXPECT_EQ(life->safe_step(), 13);
  EXPECT_FALSE(life->wants_step());
}

TEST_F(RunLifecycleTest, TheReasonOfALostLastStepIsTold) {
  const auto life = start();
  save_through_a_full_disk(*life, 10, /*leaving=*/true);
  EXPECT_THAT(failure_of([&] { life->end(Trainer::End::kFinished, 10); }),
              AllOf(HasSubstr("step 10 was NOT saved"), HasSubstr("File too large")));
}

TEST_F(RunLifecycleTest, OverwritesOnlyWhenItClaims) {
  auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/true);
  life.reset();
  { const RunLifecycle gives_up(config_, {.overwrite = true}, ranks_, console_); }
  EXPECT_TRUE(fs::exists(file("checkpoints/step-5")));
  fs::create_directories(file("checkpoints.overwritten.tmp/step-1"));  // of one that was killed
  life = start({.overwrite = true});
  EXPECT_FALSE(fs::exists(file("checkpoints")));
  EXPECT_FALSE(fs::exists(file("checkpoints.overwritten.tmp")));
}

TEST_F(RunLifecycleTest, OverwritingRemovesWhatTheFormerWeightsWereFoundToDo) {
  start().reset();
  const auto put = [&](const char* name) {
    fs::create_directories(file(name).parent_path());
    write_file(file(name), "");
  };
  put("evaluation/test-step-5/summary.json");
  fs::create_directory_symlink("test-step-5", file("evaluation/latest"));
  put("evaluation-train-step-5-1x50/summary.json");  // of an earlier adtrain
  put("scores/other-step-5/summary.json");
  put("throughput/throughput.json");
  for (const char* name : {"loss_curve.svg", "loss_curve.png"}) put(name);
  for (const char* name : {"evaluation-notes/read.me", "notes/summary.json", "evaluation.txt"}) put(name);
  start({.overwrite = true}).reset();
  for (const char* name : {"evaluation", "evaluation-train-step-5-1x50", "scores", "throughput",
                           "loss_curve.svg", "loss_curve.png"}) {
    EXPECT_FALSE(fs::exists(file(name))) << name;
  }
  for (const char* name : {"evaluation-notes/read.me", "notes/summary.json", "evaluation.txt"}) {
    EXPECT_TRUE(fs::exists(file(name))) << name << " is the user's";
  }
}

TEST_F(RunLifecycleTest, ResultsAreOfTheRunThatIsThereWhenTheyAreWritten) {
  auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/true);
  life.reset();
  const auto refusal = [&](const TrainedRun& trained, const fs::path& results) -> std::string {
    try {
      trained.refuse_if_replaced(results);
      return "none";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  const fs::path inside = file("evaluation/test-step-5");
  const TrainedRun loaded = TrainedRun::at(file("checkpoints/step-5"));
  EXPECT_EQ(refusal(loaded, inside), "none");
  life = start({.resume = true});  // it may go on, and delete the checkpoint
  life->save(snapshot(*life, 9), /*leaving=*/true);
  fs::remove_all(file("checkpoints/step-5"));
  EXPECT_EQ(refusal(loaded, inside), "none");
  life.reset();

  const TrainedRun later = TrainedRun::at(file(""));
  start({.overwrite = true}).reset();
  for (const TrainedRun& former : {loaded, later}) {
    EXPECT_THAT(refusal(former, inside),
                AllOf(HasSubstr(former.folder.root.string() + " was replaced"),
                      HasSubstr("nothing was written into " + inside.string()), HasSubstr("again")));
    EXPECT_EQ(refusal(former, folder_.path() / "elsewhere"), "none") << "they say of which weights they are";
  }
  const TrainedRun newest = TrainedRun::at(file(""));
  EXPECT_EQ(refusal(newest, inside), "none");
  fs::remove(file("state.json"));  // as another start does first
  EXPECT_THAT(refusal(newest, inside), HasSubstr("was replaced"));
  fs::remove_all(file(""));
  EXPECT_THAT(refusal(loaded, inside), HasSubstr("or deleted"));
}

TEST_F(RunLifecycleTest, AnImportedRunIsTheSameOnceItIsTrainedFurther) {
  auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/true);
  life.reset();
  for (const char* name : {"run.json", "state.json"}) fs::remove(file(name));
  const TrainedRun imported = TrainedRun::at(file(""));
  start({.resume = true}).reset();
  EXPECT_NO_THROW(imported.refuse_if_replaced(file("evaluation")));
  start({.overwrite = true}).reset();
  EXPECT_THROW(imported.refuse_if_replaced(file("evaluation")), ConfigError);
}

TEST_F(RunLifecycleTest, OverwritingKeepsTheWeightsThatItIsToBeginWith) {
  auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/true);
  life.reset();
  fs::create_directory_symlink("small", folder_.path() / "link");
  for (const char* const name : {"small", "small/checkpoints/step-5", "link/checkpoints/latest"}) {
    config_.training.init_from = (folder_.path() / name).string();
    try {
      start({.overwrite = true});
      FAIL() << name;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr("which --overwrite deletes")));
    }
    EXPECT_TRUE(fs::exists(file("checkpoints/step-5"))) << name;
  }
  config_.training.init_from = file("exported.safetensors").string();  // which stays
  start({.overwrite = true}).reset();
  EXPECT_FALSE(fs::exists(file("checkpoints")));
}

TEST_F(RunLifecycleTest, AStartClearsAwayWhatKilledWritersLeft) {
  start().reset();
  const fs::path left = temporary_beside(file("state.json")), asks = temporary_beside(file("lock"));
  for (const fs::path& path : {left, asks, file("notes.tmp")}) write_file(path, "");
  start().reset();
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(asks)) << "another process may be asking for the folder";
  EXPECT_TRUE(fs::exists(file("notes.tmp"))) << "the user's";
}

TEST_F(RunLifecycleTest, WhatAStartRecordedBeforeItsFirstCheckpointIsNotPartOfTheNext) {
  const std::vector<std::string> recorded = {"tensorboard/events", "profile/trace.json"};
  const auto record = [&] {
    for (const std::string& name : recorded) {
      fs::create_directories(file(name).parent_path());
      write_file(file(name), "");
    }
  };
  start().reset();
  record();
  auto life = start();
  for (const std::string& name : recorded) EXPECT_FALSE(fs::exists(file(name))) << name;
  record();
  life->save(snapshot(*life, 5), /*leaving=*/true);
  life.reset();
  start({.resume = true}).reset();
  for (const std::string& name : recorded) EXPECT_TRUE(fs::exists(file(name))) << name;
}

TEST_F(RunLifecycleTest, AStartThatGivesUpLeavesNoFolder) {
  { const RunLifecycle gives_up(config_, {}, ranks_, console_); }
  EXPECT_FALSE(fs::exists(folder_.path() / "small"));
  EXPECT_THROW(RunLifecycle(config_, {.resume = true}, ranks_, console_), CheckpointError);
  EXPECT_FALSE(fs::exists(folder_.path() / "small"));
}

TEST_F(RunLifecycleTest, TheBestStepIsKeptAcrossStartsAndReplacedByBetterOnesAlone) {
  config_.training.keep_best = true;
  config_.training.keep_checkpoints = 2;
  const auto save_and_measure = [this](RunLifecycle& life, int64_t step, double value) {
    life.save(snapshot(life, step), /*leaving=*/false);
    life.measured(step, {.held_out = ContextReturns{.last_ten = value},
                         .trained = {},
                         .measured_on = {{"episodes", config_.training.returns.episodes}}});
    return fs::read_symlink(file("checkpoints/best")).string();
  };
  auto life = start();
  EXPECT_EQ(save_and_measure(*life, 5, 2), "step-5");
  EXPECT_EQ(save_and_measure(*life, 10, 1), "step-5");
  EXPECT_EQ(save_and_measure(*life, 15, 2), "step-5") << "not better";
  EXPECT_EQ(save_and_measure(*life, 20, 1), "step-5");
  life.reset();
  life = start({.resume = true});
  EXPECT_EQ(life->resumed()->step, 20);
  EXPECT_EQ(save_and_measure(*life, 25, 1.5), "step-5");
  EXPECT_TRUE(fs::exists(file("checkpoints/step-5/manifest.json")));
  EXPECT_EQ(save_and_measure(*life, 30, 2.5), "step-30");
  EXPECT_FALSE(fs::exists(file("checkpoints/step-5")));
  save_through_a_full_disk(*life, 35, /*leaving=*/false);
  life->measured(35, {.held_out = ContextReturns{.last_ten = 9}, .trained = {}});
  EXPECT_EQ(fs::read_symlink(file("checkpoints/best")), "step-30") << "35 is not on the disk";
  life.reset();

  config_.training.returns.episodes += 1;
  life = start({.resume = true});
  EXPECT_EQ(save_and_measure(*life, 40, 0.5), "step-40") << "the figure before was of other settings";
}

TEST_F(RunLifecycleTest, ARunWhoseFolderWasMovedSaysWhereItsCheckpointsAreAndWritesNothing) {
  auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/false);
  const fs::path moved = folder_.path() / "moved";
  fs::rename(file(""), moved);
  write_file_atomically(file("metrics.prom"), "");  // by a writer that makes missing folders
  for (const bool at_the_end : {false, true}) {
    try {
      if (at_the_end) {
        life->end(Trainer::End::kFinished, 5);
      } else {
        life->save(snapshot(*life, 9), /*leaving=*/true);
      }
      FAIL() << "expected an EnvironmentError";
    } catch (const EnvironmentError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("was moved or deleted"), HasSubstr("moved now"),
                                      HasSubstr("up to step 5"), HasSubstr("--resume")));
    }
    EXPECT_FALSE(fs::exists(folder_.path() / "small"));
  }
  life.reset();
  EXPECT_FALSE(fs::exists(folder_.path() / "small"));
  EXPECT_FALSE(fs::exists(moved / "lock"));
  fs::rename(moved, folder_.path() / "small");
  life = start({.resume = true});
  EXPECT_EQ(life->resumed()->step, 5);
}

TEST_F(RunLifecycleTest, AFolderThatAUserMakesInThePlaceOfAMovedOneStays) {
  auto life = start();
  fs::rename(file(""), folder_.path() / "moved");
  fs::create_directory(folder_.path() / "small");
  EXPECT_THROW(life->save(snapshot(*life, 5), /*leaving=*/true), EnvironmentError);
  life.reset();
  EXPECT_TRUE(fs::exists(folder_.path() / "small"));
}

TEST_F(RunLifecycleTest, AStartWithNothingLeftToTrainKeepsTheConfiguration) {
  config_.training.train_timesteps = 9;
  auto life = start();
  life->save(snapshot(*life, 9), /*leaving=*/true);
  life->end(Trainer::End::kFinished, 9);
  life.reset();
  const std::string before = read_file(file("config.yaml")), record = read_file(file("run.json"));
  config_.training.train_timesteps = 4;
  life = start({.resume = true});
  EXPECT_EQ(life->end(Trainer::End::kFinished, 9), ExitCode::kDone);
  EXPECT_EQ(read_file(file("config.yaml")), before);
  EXPECT_EQ(read_file(file("run.json")), record);
  EXPECT_FALSE(fs::exists(file("config.1.yaml")));
}

TEST_F(RunLifecycleTest, NoRunIsMadeAmongAnothersCheckpoints) {
  auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/true);
  life.reset();
  fs::create_directory_symlink("small", folder_.path() / "link");
  const auto refusal = [this](const std::string& name) -> std::string {
    try {
      refuse_run_within_run({folder_.path() / name}, "run_name");
      return "none";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  const auto names_it = AllOf(HasSubstr("run_name: found"), HasSubstr("deletes what it no longer needs"));
  for (const char* name : {"small/checkpoints", "small/checkpoints/step-5", "small/checkpoints/step-5/a/b",
                           "small/scores/other", "link/checkpoints/x"})
    EXPECT_THAT(refusal(name), names_it) << name;
  for (const char* name : {"small", "small/", "link", "other", "group/small", "small-2", "small/fine_tuned"})
    EXPECT_EQ(refusal(name), "none") << name;
  fs::remove(file("run.json"));  // as an import leaves it
  EXPECT_THAT(refusal("small/checkpoints/other"), names_it);
  fs::remove(file("config.yaml"));
  EXPECT_EQ(refusal("small/checkpoints/other"), "none") << "a folder of checkpoints that is no run's";
}

TEST_F(RunLifecycleTest, OtherHistoriesAreRefusedUnlessAllowed) {
  auto life = start();
  life->check_histories("aaaa");
  life->save(snapshot(*life, 5), /*leaving=*/true);
  life.reset();
  life = start({.resume = true});
  life->check_histories("aaaa");
  try {
    life->check_histories("bbbb");
    FAIL() << "expected a ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("aaaa"), HasSubstr("bbbb"), HasSubstr("--allow-changes")));
  }
  life.reset();
  life = start({.resume = true, .allowed_changes = {"traj_dir"}});
  life->check_histories("bbbb");
}

/// The same launch, as far as this process can tell, with another restart.
TEST_F(RunLifecycleTest, ARestartContinuesOnlyWhatItsLaunchHasClaimed) {
  ranks_.context.launcher = Launcher::kTorchrun;
  ranks_.context.run_id = "first";
  auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/false);
  life.reset();

  ranks_.context.restart_count = 1;
  life = start({.overwrite = true});
  ASSERT_NE(life->resumed(), nullptr) << "the attempt before had overwritten already";
  EXPECT_EQ(life->resumed()->step, 5);
  life.reset();

  ranks_.context.run_id = "second";
  EXPECT_THROW(start(), ConfigError) << "a refused first attempt is refused again";
  life = start({.overwrite = true});
  EXPECT_EQ(life->resumed(), nullptr);
  EXPECT_FALSE(fs::exists(file("checkpoints/step-5")));
}

/// A rank of another agent has failed: rank 0's agent starts it again, and its count stays 0.
TEST_F(RunLifecycleTest, ARestartThatRankZerosAgentHasNotCountedOverwritesNothing) {
  ranks_.context.launcher = Launcher::kTorchrun;
  ranks_.context.run_id = "first";
  auto life = start({.overwrite = true});
  life->save(snapshot(*life, 5), /*leaving=*/false);
  life.reset();
  life = start({.overwrite = true});
  ASSERT_NE(life->resumed(), nullptr);
  EXPECT_EQ(life->resumed()->step, 5);
}

TEST_F(RunLifecycleTest, AnotherStepOfASlurmJobIsNoRestart) {
  setenv("SLURM_JOB_ID", "7", 1);
  ranks_.context.launcher = Launcher::kSlurm;
  auto life = start();
  life->save(snapshot(*life, 5), /*leaving=*/false);
  life.reset();
  EXPECT_THROW(start(), ConfigError);
  ranks_.context.restart_count = 1;
  life = start();
  ASSERT_NE(life->resumed(), nullptr) << "the job was requeued";
  EXPECT_EQ(life->resumed()->step, 5);
  unsetenv("SLURM_JOB_ID");
}

}  // namespace
}  // namespace adtrain
