#include <algorithm>
#include <set>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "checkpoint/CheckpointStore.h"
#include "support/FullDisk.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// What a write that failed may have left, anywhere below a folder.
std::vector<std::string> temporaries_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".tmp") names.push_back(entry.path().string());
  }
  return names;
}

bool is_finite(const fs::path& checkpoint) {
  const Snapshot snapshot = CheckpointStore::load(checkpoint);
  const auto finite = [](const NamedTensor& named) { return at::isfinite(named.tensor).all().item<bool>(); };
  return std::ranges::all_of(snapshot.model, finite) && std::ranges::all_of(snapshot.optimizer, finite);
}

std::vector<fs::path> checkpoints_of(const SmallRun& small) {
  std::vector<fs::path> found;
  const fs::path folder = small.run() / "checkpoints";
  if (!fs::exists(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && !entry.is_symlink()) found.push_back(entry.path());
  }
  return found;
}

/// No file can grow as large as a checkpoint's, as on a full disk; configuration and figures can be written.
const std::string kFull = limit_files_to(16);
constexpr const char* kFewFigures = " --set summary_interval=20 --set eval_interval=0";

TEST(SavedSteps, ARunWhoseLastStepIsLostIsNoSuccess) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  for (const std::string more : {"", " --stop-after 7"}) {
    const Finished lost = small.shell(kFull + "exec $adtrain small.yaml --overwrite" + kFewFigures + more);
    EXPECT_EQ(lost.exit_code, 5) << lost.output;
    EXPECT_THAT(lost.output, AllOf(HasSubstr(more.empty() ? "step 20 was NOT saved" : "step 7 was NOT saved"),
                                   HasSubstr("No step of this run is safe"), Not(HasSubstr("done:"))));
    EXPECT_FALSE(fs::exists(small.run() / "requeue"));
    EXPECT_THAT(temporaries_in(small.run()), IsEmpty());
    EXPECT_FALSE(fs::exists(small.run() / "lock"));
  }
}

TEST(SavedSteps, TheLastLineNamesTheStepThatIsSafe) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 10").exit_code, 75);
  const Finished lost = small.shell(kFull + "exec $adtrain small.yaml --resume" + kFewFigures);
  EXPECT_EQ(lost.exit_code, 5) << lost.output;
  const std::string last = lost.output.substr(lost.output.rfind("adtrain: "));
  EXPECT_THAT(last, AllOf(HasSubstr("step 20 was NOT saved"), HasSubstr("Step 10 is safe")));
  EXPECT_EQ(small.adtrain("small.yaml --resume").exit_code, 0);
}

TEST(SavedSteps, UnderSeveralRanksToo) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished lost = small.mpirun_shell(
      2, kFull + "exec " ADTRAIN_BINARY_DIR "/adtrain small.yaml --stop-after 7" + kFewFigures);
  EXPECT_EQ(lost.exit_code, 5) << lost.output;
  EXPECT_FALSE(fs::exists(small.run() / "requeue"));
}

TEST(SavedSteps, ARunThatIsOverConfirmsItsLastStep) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  // The run is over; continued, it has nothing to do but to confirm its last step.
  EXPECT_EQ(small.adtrain("small.yaml --resume").exit_code, 0);
  EXPECT_THAT(small.read("runs/small/state.json"), HasSubstr("finished"));
}

TEST(SavedSteps, AFailedSaveIsTriedAgainWhenThereIsRoom) {
  const SmallDisk disk(6144);
  if (!disk.mounted()) GTEST_SKIP() << "mounting takes root";
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string run = quoted((disk.path() / "small").string());
  const Finished finished = small.shell(
      "$adtrain small.yaml --set runs_dir=" + quoted(disk.path().string()) +
      " --set tf_n_embd=64 --set train_timesteps=1000000 --set ckpt_interval=50 --set summary_interval=10 "
      "--set eval_interval=0 >log 2>&1 & pid=$!\n"
      "until [ -e " +
      run +
      "/metrics.jsonl ] || ! kill -0 $pid; do sleep 0.05; done\n"
      "head -c 10000000 /dev/zero >" +
      run +
      "/filler 2>/dev/null\n"
      "until grep -q 'was NOT saved' log || ! kill -0 $pid; do sleep 0.05; done\n"
      "rm " +
      run +
      "/filler\n"
      "until grep -q 'saved the checkpoint of step' log || ! kill -0 $pid; do sleep 0.05; done\n"
      "kill -USR1 $pid; wait $pid; code=$?; cat log; exit $code");
  EXPECT_EQ(finished.exit_code, 75) << finished.output;
  EXPECT_THAT(finished.output, AllOf(HasSubstr("was NOT saved, and"), HasSubstr("training continues")));
  EXPECT_TRUE(fs::exists(disk.path() / "small" / "requeue"));
  EXPECT_THAT(temporaries_in(disk.path()), IsEmpty());
}

TEST(SavedSteps, NothingThatIsNotFiniteReplacesAGoodCheckpoint) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 10").exit_code, 75);
  const std::string diverges =
      "small.yaml --set lr=1e30 --set max_grad_norm=0 --set num_warmup_steps=0 --set summary_interval=100 "
      "--set ckpt_interval=5 --set train_timesteps=200";
  const Finished ended = small.adtrain(diverges + " --resume");
  EXPECT_EQ(ended.exit_code, 6) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("Step 10 is saved and finite"), HasSubstr("lr 0.003 → 1.0e+30")));
  for (const fs::path& checkpoint : checkpoints_of(small)) EXPECT_TRUE(is_finite(checkpoint)) << checkpoint;
  // The advice can be followed.
  const Finished followed = small.adtrain("small.yaml --resume --set lr=1e-3");
  EXPECT_EQ(followed.exit_code, 0) << followed.output;

  const Finished at_once = small.adtrain(diverges + " --overwrite");
  EXPECT_EQ(at_once.exit_code, 6) << at_once.output;
  EXPECT_THAT(at_once.output,
              AllOf(HasSubstr("No step is saved yet"), HasSubstr("--overwrite"), Not(HasSubstr("--resume"))));
  EXPECT_THAT(checkpoints_of(small), IsEmpty());
  EXPECT_EQ(small.adtrain("small.yaml --overwrite").exit_code, 0);
}

}  // namespace
}  // namespace adtrain
