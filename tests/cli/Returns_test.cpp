#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "base/Gpu.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kReturns =
    " --set return_interval=10 --set return_episodes=4 --set return_repeats=2 --set return_task_limit=3";

void expect_success(const Finished& finished) {
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
}

/// What `adtrain evaluate` says of a checkpoint with the settings of kReturns.
nlohmann::json evaluated(const SmallRun& small, const std::string& name, int64_t step,
                         const std::string& side) {
  const Finished finished =
      small.adtrain("evaluate runs/" + name + "/checkpoints/step-" + std::to_string(step) +
                    " --json --set eval_episodes=4 --set eval_repeats=2 --set "
                    "eval_task_limit=3 --set eval_tasks=" +
                    side + " 2>/dev/null");
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  return nlohmann::json::parse(finished.output);
}

/// All in-context returns of a record.
std::vector<double> figures_of(const nlohmann::json& record) {
  std::vector<double> figures;
  for (const char* name :
       {"test_return", "test_return_first_episode", "train_return", "train_return_first_episode"}) {
    figures.push_back(record.at(name));
  }
  return figures;
}

/// Two groups of three trials, so that two ranks have one each.
TEST(Returns, AreThoseThatEvaluatingTheCheckpointGivesOnAnyNumberOfRanks) {
  const SmallRun small;
  expect_success(small.collect());
  const std::string settings = "small.yaml --set eval_batch=3 --set tf_dropout=0.2" + kReturns;
  const Finished alone = small.adtrain(settings + " --set run_name=one");
  expect_success(alone);
  expect_success(small.mpirun(2, settings + " --set run_name=two"));
  for (const std::string name : {"one", "two"}) {
    const auto records = small.metrics(name, "test_return");
    ASSERT_EQ(records.size(), 2U);
    for (const auto& record : records) {
      const auto step = record["step"].get<int64_t>();
      for (const std::string side : {"test", "train"}) {
        const auto summary = evaluated(small, name, step, side);
        EXPECT_EQ(record[side + "_return"], summary["last10_mean"]) << name << " at step " << step;
        EXPECT_EQ(record[side + "_return_first_episode"], summary["mean"][0]) << name << " at step " << step;
        EXPECT_EQ(summary["tasks"].size(), 3U);
      }
    }
    EXPECT_EQ(records[0]["step"], 10);
    EXPECT_EQ(records[1]["step"], 20);
    EXPECT_NE(figures_of(records[0]), figures_of(records[1])) << "else any figure would do";
  }
  EXPECT_THAT(alone.output,
              AllOf(HasSubstr("in-context return after step 10:"), HasSubstr("held-out tasks")));
  EXPECT_THAT(small.adtrain("plot runs/one --what test_return --json").output, HasSubstr("20"));
}

TEST(Returns, ChangeNothingOfTheTraining) {
  const SmallRun small;
  expect_success(small.collect());
  const std::string settings = "small.yaml --set tf_dropout=0.2 --set run_name=";
  expect_success(small.adtrain(settings + "plain"));
  expect_success(small.adtrain(settings + "measured" + kReturns));
  expect_success(small.mpirun(2, settings + "plain-2"));
  expect_success(small.mpirun(2, settings + "measured-2" + kReturns));
  EXPECT_EQ(small.metrics("measured", "test_return").size(), 2U);
  for (const int64_t step : {10, 20}) {
    EXPECT_EQ(small.state("plain", step), small.state("measured", step));
    EXPECT_EQ(small.state("plain-2", step), small.state("measured-2", step));
  }
  EXPECT_NE(small.state("plain", 10), small.state("plain", 20));
}

/// In half precision, with captured steps, whose memory the measurement borrows; by the rollout kernel, and
/// step by step for a model that is too narrow for it.
TEST(Returns, OnAGpuTheyAreThoseOfTheCheckpointAndChangeNothingEither) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const SmallRun small;
  expect_success(small.collect());
  const auto check = [&small](const std::string& name, const std::string& model, const std::string& place) {
    const std::string settings =
        "small.yaml --set device=cuda --set mixed_precision=bf16 --set cuda_graph=on" + model;
    expect_success(small.adtrain(settings + " --set run_name=plain-" + name));
    expect_success(small.adtrain(settings + kReturns + " --set run_name=" + name));
    EXPECT_EQ(small.metrics(name, "test_return").size(), 2U);
    for (const auto& record : small.metrics(name, "test_return")) {
      const auto step = record["step"].get<int64_t>();
      for (const std::string side : {"test", "train"}) {
        EXPECT_EQ(record[side + "_return"], evaluated(small, name, step, side)["last10_mean"]) << step;
      }
      EXPECT_EQ(small.state("plain-" + name, step), small.state(name, step)) << step;
    }
    EXPECT_THAT(small.adtrain("evaluate runs/" + name).output, HasSubstr(place));
  };
  check("narrow", "", "asked step by step");
  check("wide", " --set tf_n_embd=32 --set tf_dropout=0.2", "an episode a kernel");
}

/// A stopped run does not wait for the measurement; the run that goes on ends with the same weights.
TEST(Returns, AStopRequestEndsTheMeasurement) {
  const SmallRun small;
  expect_success(small.collect());
  const Finished stopped = small.shell(
      kAwait +
      std::string("$adtrain small.yaml --set return_interval=10 --set return_episodes=1000000 > log 2>&1 & "
                  "await grep -q 'saved the checkpoint of step 10' log; kill $!; wait $!; status=$?; cat "
                  "log; exit $status"));
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_TRUE(std::filesystem::exists(small.run() / "requeue"));
  EXPECT_TRUE(small.metrics("small", "test_return").empty());
  expect_success(small.adtrain("small.yaml --resume" + kReturns));
  EXPECT_EQ(small.metrics("small", "test_return").back()["step"], 20);
  expect_success(small.adtrain("small.yaml --set run_name=plain"));
  EXPECT_EQ(small.state("plain", 20), small.state("small", 20));
}

TEST(Returns, TheBestCheckpointIsKeptListedAndEvaluated) {
  const SmallRun small;
  expect_success(small.collect());
  const std::string settings =
      "small.yaml --set ckpt_interval=2 --set keep_checkpoints=2 --set keep_best=true --set "
      "return_interval=2 --set return_repeats=2";
  const Finished stopped = small.mpirun(2, settings + " --stop-after 12");
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  expect_success(small.adtrain(settings + " --resume"));
  const auto records = small.metrics("small", "test_return");
  ASSERT_EQ(records.size(), 10U);
  nlohmann::json best = records[0];
  for (const auto& record : records) {
    if (record["test_return"] > best["test_return"]) best = record;
  }
  const auto step = best["step"].get<int64_t>();
  const auto link = small.run() / "checkpoints" / "best";
  EXPECT_EQ(std::filesystem::read_symlink(link), "step-" + std::to_string(step));
  const Finished evaluated = small.adtrain(
      "evaluate runs/small/checkpoints/best --json --set eval_episodes=20 --set eval_repeats=2 "
      "2>/dev/null");
  expect_success(evaluated);
  const auto summary = nlohmann::json::parse(evaluated.output);
  EXPECT_EQ(summary["checkpoint_step"], step);
  EXPECT_EQ(summary["last10_mean"], best["test_return"]);

  const auto list = nlohmann::json::parse(small.adtrain("checkpoint list runs/small --json").output);
  for (const auto& entry : list) {
    EXPECT_EQ(entry.contains("best_held_out_return"), entry["step"] == step);
  }
  EXPECT_LE(list.size(), 3U);
  EXPECT_THAT(small.adtrain("checkpoint list runs/small").output, HasSubstr("BEST: held-out return"));
  EXPECT_THAT(small.adtrain("checkpoint list runs/small/checkpoints/best").output, HasSubstr("BEST"));
}

TEST(Returns, TheBestCheckpointIsComparedOnTheTasksThatTrainTasksLeaves) {
  const SmallRun small;
  expect_success(small.collect());
  expect_success(
      small.adtrain("small.yaml --set train_env_ratio=1 --set train_tasks=0-19 --set eval_interval=0 "
                    "--set keep_best=true --set return_interval=10"));
  const auto best = nlohmann::json::parse(small.read("runs/small/checkpoints/best.json"));
  auto tasks = best.at("measured").at("tasks").get<std::vector<int64_t>>();
  std::ranges::sort(tasks);
  EXPECT_EQ(tasks, (std::vector<int64_t>{20, 21, 22, 23, 24}));
}

TEST(Returns, WhereMemoryDoesNotSufficeForThemTheirOwnSettingsAreNamed) {
  const SmallRun small;
  expect_success(small.collect());
  const Finished ended =
      small.shell("ADTRAIN_FAULT=out_of_memory:returns@0:10 $adtrain small.yaml" + kReturns);
  EXPECT_EQ(ended.exit_code, 8) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("while in-context returns were measured"),
                                  HasSubstr("eval_batch"), Not(HasSubstr("train_batch_size"))));
  expect_success(small.adtrain("small.yaml --resume" + kReturns));
}

TEST(Returns, WhatTheBestCheckpointLacksIsSaid) {
  const SmallRun small;
  const Finished unmeasured = small.adtrain("validate small.yaml --set keep_best=true");
  EXPECT_EQ(unmeasured.exit_code, 2);
  EXPECT_THAT(unmeasured.output, AllOf(HasSubstr("return_interval 0"), HasSubstr("such as 10")));
  expect_success(small.collect());
  const Finished none_held_out =
      small.adtrain("small.yaml --set train_env_ratio=1 --set keep_best=true --set return_interval=10");
  EXPECT_EQ(none_held_out.exit_code, 2);
  EXPECT_THAT(none_held_out.output, HasSubstr("no task is held out"));
}

/// As the Python projects' configurations may have it, whose gen_interval it is.
TEST(Returns, AStepBetweenTwoCheckpointsIsSavedWhereItIsMeasured) {
  const SmallRun small;
  expect_success(small.collect());
  const Finished trained = small.adtrain(
      "train small.yaml --json --set gen_interval=15 --set return_episodes=4 --set return_repeats=2 "
      "--set return_task_limit=3 --set keep_checkpoints=4 2> log");
  expect_success(trained);
  const auto records = small.metrics("small", "test_return");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0]["step"], 15);
  EXPECT_EQ(records[0]["test_return"], evaluated(small, "small", 15, "test")["last10_mean"]);
  EXPECT_EQ(records[1]["step"], 20);
  EXPECT_TRUE(std::filesystem::exists(small.run() / "checkpoints" / "step-10"));

  const auto result = nlohmann::json::parse(trained.output);
  EXPECT_EQ(result["metrics"], small.metrics("small", "loss").back());
  EXPECT_EQ(result["held_out"], small.metrics("small", "test_loss").back());
  EXPECT_EQ(result["returns"], records[1]);
}

TEST(Returns, BelongToTheRunThatIsOverwritten) {
  const SmallRun small;
  expect_success(small.collect());
  expect_success(small.adtrain("small.yaml"));
  evaluated(small, "small", 20, "test");
  expect_success(small.adtrain("plot runs/small --out before.svg"));
  expect_success(small.adtrain("small.yaml --overwrite"));
  const Finished plotted = small.adtrain("plot runs/small --out after.svg");
  EXPECT_EQ(plotted.exit_code, 4);
  EXPECT_THAT(plotted.output, HasSubstr("adtrain evaluate runs/small"));
}

TEST(Returns, OfTrainingTasksAreMeasuredOnThoseWithoutHistoriesTooWhichIsSaid) {
  const SmallRun small;
  expect_success(small.adtrain("collect small.yaml --set tasks=0-11"));
  EXPECT_THAT(small.adtrain("small.yaml --stop-after 1 --set run_name=plain").output,
              AllOf(HasSubstr("lacks tasks"), Not(HasSubstr("train_return"))));
  EXPECT_THAT(small.adtrain("small.yaml --stop-after 1" + kReturns).output,
              AllOf(HasSubstr("lacks tasks"), HasSubstr("train_return")));
}

TEST(Returns, AreNotRepeatedWhereActionsAreGreedy) {
  const SmallRun small;
  const Finished greedy =
      small.adtrain("validate small.yaml --set eval_sampling=greedy --set eval_repeats=1" + kReturns);
  EXPECT_EQ(greedy.exit_code, 2);
  EXPECT_THAT(greedy.output, HasSubstr("return_repeats: 1"));
}

}  // namespace
}  // namespace adtrain
