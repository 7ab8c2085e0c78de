#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kLong =
    "small.yaml --set train_timesteps=1000000 --set summary_interval=10 --set eval_interval=0";

/// Starts a run in the background, and returns from the shell's `until` once it trains.
std::string in_the_background(const std::string& launcher) {
  return launcher + " $adtrain " + kLong + " >log 2>&1 & pid=$!\n" +
         "until [ -s runs/small/metrics.jsonl ] || ! kill -0 $pid; do sleep 0.05; done\n";
}

TEST(OwnedFolder, ALiveRunIsNotTouchedByAnotherStart) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished =
      small.shell(in_the_background("") +
                  "cp runs/small/config.yaml before\n"
                  "for flag in --overwrite --resume ''; do\n"
                  "  $adtrain small.yaml --set lr=0.5 $flag >second 2>&1; echo \"code $?\"; cat second\n"
                  "  cmp before runs/small/config.yaml || echo rewritten\n"
                  "  grep -o \"is in use by process $pid on host\" second\n"
                  "done\n"
                  "kill -USR1 $pid; wait $pid; echo \"first $?\"; cat log");
  std::string rest = finished.output;
  for (int start = 0; start < 3; ++start) {
    const size_t found = rest.find("code 2");
    ASSERT_NE(found, std::string::npos) << finished.output;
    rest = rest.substr(found + 1);
    EXPECT_THAT(rest, HasSubstr("is in use by process")) << finished.output;
  }
  EXPECT_THAT(finished.output, AllOf(HasSubstr("first 75"), Not(HasSubstr("rewritten"))));
  EXPECT_FALSE(fs::exists(small.run() / "lock"));
}

TEST(OwnedFolder, OfTwoStartsAtOneInstantOneTrains) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  for (const std::string flag : {"", "--overwrite"}) {
    const Finished finished =
        small.shell("$adtrain " + std::string(kLong) + " " + flag + " >log1 2>&1 & first=$!\n$adtrain " +
                    kLong + " " + flag +
                    " >log2 2>&1 & second=$!\n"
                    "wait -n $first $second; echo \"loser $?\"\n"
                    "if kill -0 $first 2>/dev/null; then winner=$first; else winner=$second; fi\n"
                    "until [ -s runs/small/metrics.jsonl ] || ! kill -0 $winner; do sleep 0.05; done\n"
                    "kill -USR1 $winner; wait $winner; echo \"winner $?\"; cat log1 log2");
    EXPECT_THAT(finished.output,
                AllOf(HasSubstr("loser 2"), HasSubstr("winner 75"), HasSubstr("is in use by")));
  }
}

TEST(OwnedFolder, OneThatWasKilledIsFreeAtOnce) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished = small.shell(in_the_background("") +
                                        "kill -KILL $pid; wait $pid; ls runs/small/lock\n"
                                        "$adtrain small.yaml --overwrite");
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output, Not(HasSubstr("No such file")));
  EXPECT_FALSE(fs::exists(small.run() / "lock"));
}

/// The second launch fails; what it says about that must not stand in the first one's folder.
TEST(OwnedFolder, ARefusedLaunchLeavesNoRecordInTheFolder) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished =
      small.shell(in_the_background("") +
                  "$adtrain launch --nproc 2 --logs logs small.yaml --overwrite >second 2>&1\n"
                  "echo \"code $?\"; cat second; ls runs/small\n"
                  "kill -USR1 $pid; wait $pid; echo \"first $?\"");
  EXPECT_THAT(finished.output, AllOf(HasSubstr("code 2"), HasSubstr("is in use by process"),
                                     Not(HasSubstr("failure.txt was not written")), HasSubstr("first 75")));
  EXPECT_FALSE(fs::exists(small.run() / "failure.txt"));
}

TEST(OwnedFolder, ARefusedLaunchLeavesNoRecordInAFinishedRun) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string two = "$adtrain launch --nproc 2 --logs logs small.yaml ";
  const Finished finished = small.shell(two + ">first 2>&1; echo \"first $?\"\n" + two +
                                        ">second 2>&1; echo \"second $?\"; cat second");
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("first 0"), HasSubstr("second 2"), HasSubstr("continue it with --resume"),
                    HasSubstr("rank 0 of 2 failed first")));
  EXPECT_FALSE(fs::exists(small.run() / "failure.txt"));
}

/// It is stopped while another run takes the folder, and finds that one when it goes on.
TEST(OwnedFolder, ResultsOfARunThatWasReplacedAreNotAmongTheNewOnes) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  for (const std::string command :
       {"evaluate runs/small --set eval_episodes=1000",
        "score runs/small --set score_tasks=all --set score_max_samples=12000 --set score_batch=1"}) {
    const Finished finished =
        small.shell(std::string(kAwait) + "rm -f log\n$adtrain " + command +
                    " >log 2>&1 & pid=$!\n"
                    "await grep -qs results log; kill -STOP $pid\n"
                    "$adtrain small.yaml --overwrite >second 2>&1; echo \"new run $?\"\n"
                    "kill -CONT $pid; wait $pid; echo \"code $?\"; cat log");
    EXPECT_THAT(finished.output, AllOf(HasSubstr("new run 0"), HasSubstr("code 2"),
                                       HasSubstr("runs/small was replaced by another run (--overwrite)"),
                                       HasSubstr("evaluate or score again")));
    for (const char* results : {"evaluation", "scores"}) EXPECT_FALSE(fs::exists(small.run() / results));
  }
}

TEST(OwnedFolder, ARunWhoseFolderIsMovedEndsAndGoesOnWhereItIsMovedBack) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished =
      small.shell(std::string(kAwait) + in_the_background("") +
                  "await test -e runs/small/checkpoints/latest; mv runs/small runs/moved\n"
                  "wait $pid; echo \"code $?\"; cat log; ls runs\n"
                  "mv runs/moved runs/small; $adtrain " +
                  kLong + " --resume --stop-after 1; echo \"again $?\"");
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("code 3"), HasSubstr("runs/small was moved or deleted while this run trained"),
                    HasSubstr("runs/moved now"), HasSubstr("go on with --resume"), HasSubstr("again 75")));
  EXPECT_FALSE(fs::exists(small.run() / "moved")) << "mv found a folder of that name";
  EXPECT_FALSE(fs::exists(small.run() / "lock"));
}

/// What the failure of several ranks is written to must not make the folder anew.
TEST(OwnedFolder, RanksWhoseFolderIsMovedLeaveNoRecordInItsPlace) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished = small.shell(
      std::string(kAwait) + "$adtrain launch --nproc 2 --logs logs " + kLong +
      " >log 2>&1 & pid=$!\nawait test -e runs/small/checkpoints/latest; mv runs/small runs/moved\n"
      "wait $pid; echo \"code $?\"; cat log");
  EXPECT_THAT(finished.output, AllOf(HasSubstr("code 3"), HasSubstr("was moved or deleted")));
  EXPECT_FALSE(fs::exists(small.run()));
  EXPECT_FALSE(fs::exists(small.run("moved") / "lock"));
}

TEST(OwnedFolder, ARunWhoseFolderIsDeletedIsNoSuccess) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished =
      small.shell(std::string(kAwait) + in_the_background("") +
                  "await test -e runs/small/checkpoints/latest; await rm -rf runs/small 2>/dev/null\n"
                  "wait $pid; echo \"code $?\"; cat log");
  EXPECT_THAT(finished.output, AllOf(HasSubstr("code 3"), HasSubstr("was moved or deleted"),
                                     HasSubstr("start again"), Not(HasSubstr("done:"))));
}

TEST(OwnedFolder, ADamagedLockIsNamedAtOnceAndTheWaitingCanBeStopped) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished = small.shell(std::string(kAwait) +
                                        "mkdir -p runs/small; : >runs/small/lock\n"
                                        "$adtrain small.yaml >log 2>&1 & pid=$!\n"
                                        "await grep -q 'waiting up to' log; kill -TERM $pid\n"
                                        "wait $pid; echo \"code $?\"; cat log; ls -A runs/small");
  EXPECT_THAT(finished.output, AllOf(HasSubstr("code 143"), HasSubstr("runs/small/lock cannot be read"),
                                     HasSubstr("stopped by SIGTERM"), Not(HasSubstr(".tmp"))));
}

TEST(OwnedFolder, NoRunIsMadeAmongAnothersCheckpoints) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  for (const std::string name : {"small/checkpoints/step-20", "small/checkpoints/step-10/x"}) {
    const Finished refused = small.adtrain("small.yaml --set run_name=" + name);
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_THAT(refused.output, AllOf(HasSubstr("run_name"), HasSubstr("runs/" + name),
                                      HasSubstr("deletes what it no longer needs")));
    EXPECT_FALSE(fs::exists(small.folder() / "runs" / name / "lock"));
  }
  EXPECT_EQ(small.adtrain("checkpoint verify runs/small").exit_code, 0);
}

TEST(OwnedFolder, ARunStaysBelowRunsDir) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --set runs_dir=. --set run_name=victim --stop-after 10").exit_code, 75);
  const std::string absolute = (small.folder() / "victim").string();
  for (const std::string& name :
       {std::string("../victim"), std::string("../../") + "victim", std::string("a/../../victim"),
        std::string(".."), std::string("."), absolute, std::string(""), std::string("  ")}) {
    const Finished refused =
        small.adtrain("small.yaml --overwrite --set " + quoted("run_name='" + name + "'"));
    EXPECT_EQ(refused.exit_code, 2) << name << refused.output;
    EXPECT_THAT(refused.output, AllOf(HasSubstr("run_name"), HasSubstr("below runs_dir"))) << name;
  }
  for (const char* name : {"\xff\xfe", "caf\xe9"}) {  // no text of the configuration may be so
    const Finished refused =
        small.adtrain("small.yaml --overwrite --set " + quoted(std::string("run_name=") + name));
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_THAT(refused.output, AllOf(HasSubstr("run_name"), HasSubstr("UTF-8")));
  }
  EXPECT_TRUE(fs::exists(small.folder() / "victim" / "checkpoints" / "step-10"));
  EXPECT_EQ(small.adtrain("small.yaml --stop-after 1 --set run_name=sweep/größer-2").exit_code, 75);
}

}  // namespace
}  // namespace adtrain
