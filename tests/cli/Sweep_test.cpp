#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "base/Gpu.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kFour = "sweep small.yaml --set lr=0.003,0.0003 --seeds 2 ";

TEST(Sweep, AllCombinationsAreTrainedEvaluatedAndShownAndAreNotRepeated) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished planned = small.adtrain(kFour + std::string("--dry-run"));
  EXPECT_EQ(planned.exit_code, 0) << planned.output;
  EXPECT_THAT(planned.output, AllOf(HasSubstr("4 runs"), HasSubstr("lr-0.0003-seed-43: to train")));
  EXPECT_FALSE(fs::exists(small.run("small-sweep")));

  const Finished swept = small.adtrain(kFour);
  ASSERT_EQ(swept.exit_code, 0) << swept.output;
  EXPECT_THAT(swept.output, AllOf(HasSubstr("lr-0.003-seed-42: trained and evaluated in"), HasSubstr("[4/4]"),
                                  HasSubstr("lr 0.003"), HasSubstr("last ten episodes"), HasSubstr("±")));
  for (const std::string name :
       {"lr-0.003-seed-42", "lr-0.003-seed-43", "lr-0.0003-seed-42", "lr-0.0003-seed-43"}) {
    EXPECT_TRUE(fs::exists(small.run("small-sweep/" + name) / "checkpoints" / "step-20")) << name;
    EXPECT_THAT(small.read("runs/small-sweep/logs/" + name + ".log"), HasSubstr("learning curve")) << name;
  }
  EXPECT_THAT(small.read("runs/small-sweep/returns.pdf"), StartsWith("%PDF-"));
  EXPECT_THAT(small.read("runs/small-sweep/returns.svg"), HasSubstr("lr 0.0003 (n = 2)"));
  EXPECT_THAT(small.read("runs/small-sweep/returns.csv"), HasSubstr("\n\"lr 0.0003\",2,"));

  // A run of a sweep is the run that its settings make alone.
  ASSERT_EQ(small.adtrain("small.yaml --set lr=0.0003 --set seed=43 --set run_name=alone").exit_code, 0);
  ASSERT_EQ(small.adtrain("evaluate runs/alone").exit_code, 0);
  const Finished equal =
      small.adtrain("compare runs/alone runs/small-sweep/lr-0.0003-seed-43 --expect-equal");
  EXPECT_EQ(equal.exit_code, 0) << equal.output;

  const auto written =
      fs::last_write_time(small.run("small-sweep/lr-0.003-seed-42") / "checkpoints" / "step-20");
  const Finished again = small.adtrain(kFour + std::string("--json 2> progress"));
  ASSERT_EQ(again.exit_code, 0) << again.output;
  const auto document = nlohmann::json::parse(again.output);
  EXPECT_EQ(document.at("runs").at(3).at("status"), "done");
  EXPECT_EQ(document.at("returns").size(), 2U);
  EXPECT_EQ(document, nlohmann::json::parse(small.read("runs/small-sweep/sweep.json")));
  EXPECT_EQ(fs::last_write_time(small.run("small-sweep/lr-0.003-seed-42") / "checkpoints" / "step-20"),
            written);

  const Finished more = small.adtrain("sweep small.yaml --set lr=0.003,0.0003 --seeds 3 --dry-run");
  EXPECT_THAT(more.output,
              AllOf(HasSubstr("lr-0.003-seed-43: done"), HasSubstr("lr-0.003-seed-44: to train")));

  const auto refused = [&](const std::string& setting, const std::string& why) {
    const Finished other = small.adtrain(kFour + setting);
    EXPECT_EQ(other.exit_code, 2) << other.output;
    EXPECT_THAT(other.output, AllOf(HasSubstr(why), HasSubstr("--name"), HasSubstr("--overwrite")));
  };
  refused("--set n_transit=8", "n_transit 16 → 8");
  refused("--set weight_decay=0.5", "weight_decay");  // which a run may change when it is continued

  // What a user evaluates besides is not in the table.
  const std::string one = "evaluate runs/small-sweep/lr-0.003-seed-42 ";
  for (const std::string setting : {"--set eval_tasks=train", "--set eval_task_limit=1"}) {
    ASSERT_EQ(small.adtrain(one + setting).exit_code, 0);
    EXPECT_THAT(small.adtrain(kFour + std::string("--dry-run")).output,
                HasSubstr("lr-0.003-seed-42: to evaluate"))
        << setting;
  }
  ASSERT_EQ(small.adtrain(one).exit_code, 0);
  EXPECT_THAT(small.adtrain(kFour + std::string("--dry-run")).output, HasSubstr("lr-0.003-seed-42: done"));
}

TEST(Sweep, AStoppedSweepSavesAndIsContinued) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string sweep =
      "sweep small.yaml --seeds 2 --jobs 1 --name seeds --set train_timesteps=40 --set eval_interval=0 ";
  const Finished stopped =
      small.shell(kAwait + ("{ ADTRAIN_FAULT=slow@0:6-40 $adtrain " + sweep +
                            "& } && await eval '[ $(cat runs/seeds/seed-42/metrics.jsonl "
                            "2>/dev/null | wc -l) -gt 5 ]'; kill -TERM $!; wait $!"));
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_THAT(stopped.output, AllOf(HasSubstr("seed-42: stopped"), HasSubstr("The same command continues"),
                                    Not(HasSubstr("seed-43: training"))));
  EXPECT_TRUE(fs::exists(small.run("seeds/seed-42") / "checkpoints" / "latest"));
  const Finished continued = small.adtrain(sweep);
  EXPECT_EQ(continued.exit_code, 0) << continued.output;
  EXPECT_THAT(small.read("runs/seeds/logs/seed-42.log"), HasSubstr("resuming after step"));
  EXPECT_TRUE(fs::exists(small.run("seeds/seed-43") / "checkpoints" / "step-40"));
}

/// Starts this sweep and asks it to stop when its first run trains.
std::string stopped_in_the_first(const std::string& sweep) {
  return kAwait + ("{ ADTRAIN_FAULT=slow@0:1-20 $adtrain " + sweep +
                   "& } && await grep -qs '\"training\"' runs/seeds/seed-42/state.json; "
                   "kill -TERM $!; wait $!");
}

TEST(Sweep, OneThatBeginsAnewAndIsStoppedIsContinuedWithoutOverwrite) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string sweep = "sweep small.yaml --seeds 2 --jobs 1 --name seeds ";
  const Finished before = small.adtrain(sweep);
  ASSERT_EQ(before.exit_code, 0) << before.output;
  small.write("runs/seeds/seed-43/notes.txt", "of the user");

  // The settings are the same: what is old must not count as done.
  const Finished stopped = small.shell(stopped_in_the_first(sweep + "--overwrite"));
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_THAT(stopped.output, HasSubstr("The same command without --overwrite continues"));
  EXPECT_FALSE(fs::exists(small.run("seeds") / "returns.csv")) << "it tells of runs that are gone";
  EXPECT_TRUE(fs::exists(small.run("seeds/seed-43") / "notes.txt"));
  EXPECT_THAT(small.adtrain(sweep + "--dry-run").output,
              AllOf(HasSubstr("seed-42: to train"), HasSubstr("seed-43: to train")));

  // They are others: what is old must not be refused.
  const std::string other = sweep + "--set weight_decay=0.5 ";
  const Finished again = small.shell(stopped_in_the_first(other + "--overwrite"));
  EXPECT_EQ(again.exit_code, 75) << again.output;
  const Finished continued = small.adtrain(other);
  EXPECT_EQ(continued.exit_code, 0) << continued.output;
  EXPECT_THAT(continued.output, AllOf(Not(HasSubstr("done before")), HasSubstr("returns of 2 runs")));
  EXPECT_THAT(small.read("runs/seeds/logs/seed-42.log"), HasSubstr("resuming after step"));
  for (const std::string name : {"seeds/seed-42", "seeds/seed-43"})
    EXPECT_THAT(small.read("runs/" + name + "/config.yaml"), HasSubstr("weight_decay: 0.5")) << name;
}

TEST(Sweep, NothingIsBegunAnewWhileARunIsInUse) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string by_hand = "small.yaml --set runs_dir=runs/seeds ";
  ASSERT_EQ(small.adtrain(by_hand + "--set seed=42 --set run_name=seed-42").exit_code, 0);
  const Finished refused =
      small.shell(kAwait + ("{ ADTRAIN_FAULT=slow@0:1-20 $adtrain " + by_hand +
                            "--set seed=43 --set run_name=seed-43 > log & } && await test -s "
                            "runs/seeds/seed-43/state.json; $adtrain sweep small.yaml --seeds 2 --name seeds "
                            "--overwrite; echo \"sweep $?\"; kill -TERM $!; wait $!; echo \"run $?\""));
  EXPECT_THAT(refused.output, AllOf(HasSubstr("seed-43 is in use by process"), HasSubstr("sweep 2"),
                                    HasSubstr("run 75"), Not(HasSubstr("training"))));
  EXPECT_TRUE(fs::exists(small.run("seeds/seed-42") / "checkpoints" / "step-20"));
  EXPECT_TRUE(fs::exists(small.run("seeds/seed-43") / "checkpoints" / "latest"));
  EXPECT_FALSE(fs::exists(small.run("seeds/seed-42") / "lock"));
}

TEST(Sweep, ARunThatFailsIsNamedAndHarmsNoOther) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string sweep =
      "sweep small.yaml --set lr=1e30,0.003 --set max_grad_norm=0 --set num_warmup_steps=0 --name blows-up ";
  const Finished failed = small.adtrain(sweep);
  EXPECT_EQ(failed.exit_code, 6) << failed.output;
  EXPECT_THAT(failed.output,
              AllOf(HasSubstr("lr-1e30 failed: exit code 6"), HasSubstr("logs/lr-1e30.log"),
                    HasSubstr("1 of 2 runs failed"), HasSubstr("lr-0.003: trained and evaluated")));
  EXPECT_THAT(small.read("runs/blows-up/returns.csv"), HasSubstr(",1,"));
  const auto document = nlohmann::json::parse(small.read("runs/blows-up/sweep.json"));
  EXPECT_EQ(document.at("runs").at(0).at("status"), "failed");
}

TEST(Sweep, EachRunHasAGpuOfItsOwn) {
  const int gpus = visible_gpu_count();
  if (gpus == 0) GTEST_SKIP() << "no GPU here";
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string runs = std::to_string(gpus + 1), settings = "small.yaml --set device=cuda ";
  const Finished swept = small.adtrain("sweep " + settings + "--name gpus --seeds " + runs);
  ASSERT_EQ(swept.exit_code, 0) << swept.output;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    EXPECT_THAT(swept.output, HasSubstr("training on GPU " + std::to_string(gpu)));
  }
  const int last_seed = 42 + gpus;
  ASSERT_EQ(
      small.adtrain(settings + "--set run_name=alone --set seed=" + std::to_string(last_seed)).exit_code, 0);
  ASSERT_EQ(small.adtrain("evaluate runs/alone").exit_code, 0);
  const Finished equal =
      small.adtrain("compare runs/alone runs/gpus/seed-" + std::to_string(last_seed) + " --expect-equal");
  EXPECT_EQ(equal.exit_code, 0) << equal.output;
}

TEST(Sweep, SeveralRanksARun) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished swept = small.adtrain("sweep small.yaml --seeds 1 --nproc 2 --name pairs");
  EXPECT_EQ(swept.exit_code, 0) << swept.output;
  EXPECT_THAT(small.read("runs/pairs/logs/seed-42.log"), HasSubstr("2 ranks on this host"));
}

TEST(Sweep, WhatCannotBeginIsSaidBeforeAnythingBegins) {
  const SmallRun small;
  const auto refused = [&](const std::string& arguments, int code, const auto& matcher) {
    const Finished finished = small.adtrain("sweep small.yaml " + arguments);
    EXPECT_EQ(finished.exit_code, code) << finished.output;
    EXPECT_THAT(finished.output, matcher) << arguments;
    EXPECT_FALSE(fs::exists(small.folder() / "runs"));
  };
  refused("--seeds 2", 4, AllOf(HasSubstr("history_darkroom"), HasSubstr("adtrain collect small.yaml")));
  ASSERT_EQ(small.collect().exit_code, 0);
  refused("", 2, HasSubstr("nothing varies"));
  refused("--seeds 0", 2, HasSubstr("--seeds: found 0"));
  refused("--set lr=0.1,-1", 2, HasSubstr("lr"));
  refused("--set learning_rates=0.1,0.2", 2, HasSubstr("learning_rates"));
  refused("--seeds 2 --name ../elsewhere", 2, HasSubstr("run_name"));
  refused("--seeds 2 --jobs 0", 2, HasSubstr("--jobs"));
}

}  // namespace
}  // namespace adtrain
