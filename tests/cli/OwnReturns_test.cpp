#include <algorithm>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "support/Python.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kReturns =
    " --set return_interval=10 --set return_episodes=3 --set return_repeats=2 --set eval_batch=2";

/// Tasks of lessons.py whose environments fail where the folder says so: a file `broken` is taken away by the
/// first that steps, and the import of a number in `fails_at_import` fails.
constexpr const char* kModule = R"(
import os
import pathlib
from lessons import Names, make_pairs, TASKS

imports = pathlib.Path("imports")
if pathlib.Path("fails_at_import").exists():
    imports.write_text(imports.read_text() + "i" if imports.exists() else "i")
    if len(imports.read_text()) == int(pathlib.Path("fails_at_import").read_text()):
        raise RuntimeError("no licence is free")


class Fragile(Names):
    def reward(self, action):
        try:
            os.remove("broken")
        except FileNotFoundError:
            return super().reward(action)
        raise RuntimeError("a joint is stuck")


def make_fragile(task, seed):
    return Fragile(task)
)";

/// Runs on tasks of which two of three are trained on.
class OwnReturns : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    run_ = std::make_unique<SmallRun>();
    has_gymnasium_ = has_python_package("gymnasium");
    if (!has_gymnasium_) return;
    run_->write("lessons.py", read_file(ADTRAIN_SOURCE_DIR "/tests/environments/worker/lessons.py"));
    run_->write("fragile.py", kModule);
    run_->write("own.yaml", R"(
env: lessons
env_worker: fragile:make_fragile
env_python: )" ADTRAIN_PYTHON R"(
n_stream: 4
n_steps: 16
batch_size: 32
n_epochs: 2
total_source_timesteps: 1200
train_tasks: 0,2
tf_n_embd: 16
tf_n_layer: 2
tf_n_head: 2
tf_dropout: 0.2
n_transit: 20
loss_positions: all
train_timesteps: 20
ckpt_interval: 10
global_batch_size: 8
lr: 0.01
eval_windows: 16
cpu_threads: 1
device: cpu
)");
    const Finished collected = run_->adtrain("collect own.yaml");
    ASSERT_EQ(collected.exit_code, 0) << collected.output;
    expect_success(run_->adtrain("own.yaml --set run_name=plain"));
  }
  static void TearDownTestSuite() { run_.reset(); }
  void SetUp() override {
    if (!has_gymnasium_) GTEST_SKIP() << "no gymnasium in " << ADTRAIN_PYTHON;
  }

  static void expect_success(const Finished& finished) {
    ASSERT_EQ(finished.exit_code, 0) << finished.output;
  }
  /// What `adtrain evaluate` says of the newest checkpoint with the settings of kReturns.
  static nlohmann::json evaluated(const std::string& name, const std::string& side) {
    const Finished finished = run_->adtrain(
        "evaluate runs/" + name +
        " --json --set eval_episodes=3 --set eval_repeats=2 --set eval_tasks=" + side + " 2>/dev/null");
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
    return nlohmann::json::parse(finished.output);
  }

  static std::unique_ptr<SmallRun> run_;
  static bool has_gymnasium_;
};

std::unique_ptr<SmallRun> OwnReturns::run_;
bool OwnReturns::has_gymnasium_ = false;

/// Four trials on training tasks and two on held-out ones, two a group: two ranks play, then one of them.
TEST_F(OwnReturns, AreThoseThatEvaluatingTheCheckpointGivesAndChangeNothingOfTheTraining) {
  expect_success(run_->adtrain("own.yaml --set run_name=one --set keep_best=true" + kReturns));
  expect_success(run_->mpirun(2, "own.yaml --set run_name=two --set eval_context=rolling" + kReturns));
  EXPECT_TRUE(run_->state("one", 20) == run_->state("plain", 20));
  for (const std::string name : {"one", "two"}) {
    const auto records = run_->metrics(name, "test_return");
    ASSERT_EQ(records.size(), 2U);
    for (const std::string side : {"test", "train"}) {
      const auto summary = evaluated(name, side);
      EXPECT_EQ(records[1][side + "_return"], summary["last10_mean"]) << name;
      EXPECT_EQ(records[1][side + "_return_first_episode"], summary["mean"][0]) << name;
      EXPECT_EQ(summary["task_names"],
                side == "test" ? nlohmann::json({"middle"}) : nlohmann::json({"low", "high"}));
    }
    EXPECT_NE(records[0]["train_return"], records[1]["train_return"]) << "else any figure would do";
  }
  const auto best = nlohmann::json::parse(run_->read("runs/one/checkpoints/best.json"));
  EXPECT_EQ(best.at("measured").at("tasks"), nlohmann::json({1}));
  EXPECT_EQ(best.at("measured").at("env_worker"), "fragile:make_fragile");
}

TEST_F(OwnReturns, EnvironmentsThatFailCostTheFigureAndNotTheRun) {
  run_->write("broken", "");
  const Finished stuck = run_->mpirun(2, "own.yaml --set run_name=stuck" + kReturns);
  expect_success(stuck);
  EXPECT_THAT(stuck.output,
              AllOf(HasSubstr("no in-context return, and training continues: the environments of rank "),
                    HasSubstr("a joint is stuck")));
  ASSERT_EQ(run_->metrics("stuck", "test_return").size(), 1U);
  EXPECT_EQ(run_->metrics("stuck", "test_return")[0]["step"], 20);

  run_->write("fails_at_import", "2");  // the first import is that of the check before training
  const Finished gone = run_->adtrain("own.yaml --set run_name=gone" + kReturns);
  std::filesystem::remove(run_->folder() / "fails_at_import");
  expect_success(gone);
  EXPECT_THAT(gone.output, AllOf(HasSubstr("training continues: the environments of rank 0 failed"),
                                 HasSubstr("no licence is free")));
  EXPECT_EQ(run_->metrics("gone", "test_return").size(), 1U);
  EXPECT_TRUE(run_->state("gone", 20) == run_->state("plain", 20));
}

TEST_F(OwnReturns, WhatIsWrongIsSaidBeforeTrainingBegins) {
  const auto refused = [](const std::string& settings, const testing::Matcher<const std::string&>& says) {
    const Finished finished = run_->adtrain("own.yaml --set run_name=refused" + kReturns + settings);
    EXPECT_EQ(finished.exit_code, 2) << finished.output;
    EXPECT_THAT(finished.output, AllOf(says, Not(HasSubstr("saved the checkpoint"))));
    EXPECT_FALSE(std::filesystem::exists(run_->run("refused")));
  };
  refused(" --set env_worker=null --set histories=histories/history_lessons_PPO_alg-seed0.hdf5",
          AllOf(HasSubstr("return_interval: found 10"), HasSubstr("env_worker: module:function")));
  refused(" --set env_worker=fragile:make_pairs", HasSubstr("other spaces than"));
  refused(" --set keep_best=true --set train_tasks=0-2", HasSubstr("no task is held out"));
}

}  // namespace
}  // namespace adtrain
