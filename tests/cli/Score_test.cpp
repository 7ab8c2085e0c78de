#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "OwnHistories.h"
#include "SmallRun.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A trained run whose histories are scored.
class Score : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    run_ = std::make_unique<SmallRun>();
    ASSERT_EQ(run_->collect().exit_code, 0);
    const Finished trained = run_->adtrain("small.yaml");
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
  }
  static void TearDownTestSuite() { run_.reset(); }

  static constexpr const char* kHistories = "histories/history_darkroom_PPO_alg-seed1.hdf5";
  static std::string arguments(const std::string& more) {
    return std::string("score runs/small ") + kHistories + " " + more;
  }
  static void expect_done(const Finished& finished) { EXPECT_EQ(finished.exit_code, 0) << finished.output; }
  static void expect_error(const Finished& finished, int code,
                           const testing::Matcher<const std::string&>& says) {
    EXPECT_EQ(finished.exit_code, code) << finished.output;
    EXPECT_THAT(finished.output, says);
  }
  /// Two folders have the same scores, byte for byte, and say the same of them.
  static void expect_equal(const std::string& found, const std::string& expected) {
    for (const char* const file : {"/scores.npy", "/scores.csv"})
      EXPECT_TRUE(run_->read(found + file) == run_->read(expected + file)) << found << file;
    json summaries[] = {json::parse(run_->read(found + "/summary.json")),
                        json::parse(run_->read(expected + "/summary.json"))};
    for (json& summary : summaries) {
      summary.erase("seconds");
      summary.erase("samples_per_second");
    }
    EXPECT_EQ(summaries[0], summaries[1]);
  }
  /// As another program computes them, where run and histories are given.
  static void expect_true_scores(const std::string& folder_and_origin) {
    const Finished read = run_->shell("PYTHONPATH=" ADTRAIN_SOURCE_DIR "/src/python " ADTRAIN_PYTHON
                                      " " ADTRAIN_SOURCE_DIR "/tests/interop/read_scores.py " +
                                      folder_and_origin);
    EXPECT_EQ(read.exit_code, 0) << read.output;
  }

  static std::unique_ptr<SmallRun> run_;
};

std::unique_ptr<SmallRun> Score::run_;

TEST_F(Score, OneProcessRanksAndPartsGiveTheSameBytes) {
  const std::string seven = arguments("--set max_samples=7 --set output_dir=");
  const Finished one = run_->adtrain(seven + "one --set cpu_threads=2");
  expect_done(one);
  EXPECT_THAT(one.output, AllOf(HasSubstr("step 20 of runs/small"), HasSubstr("samples/s"),
                                HasSubstr("accuracy"), HasSubstr("one/scores.csv")));
  const json summary = json::parse(run_->read("one/summary.json"));
  EXPECT_EQ(summary["samples"], 7);
  EXPECT_EQ(summary["part"]["windows"], 5 * 10 * (80 - 15));
  EXPECT_EQ(summary["scored"]["score_batch"], 1);
  expect_true_scores(std::string("one runs/small ") + kHistories);

  expect_done(run_->mpirun(4, seven + "four"));
  expect_equal("four", "one");
  expect_done(run_->adtrain("launch --nproc 3 " + seven + "three"));
  expect_equal("three", "one");
  // Ranks and parts without a sample wait for nobody.
  const std::string two = arguments("--set max_samples=2 --set output_dir=");
  expect_done(run_->adtrain(two + "two"));
  expect_done(run_->mpirun(4, two + "two-of-four"));
  expect_equal("two-of-four", "two");
  expect_done(run_->torchrun(3, two + "two-of-three"));
  expect_equal("two-of-three", "two");
  for (const char* const shard : {"0", "1", "2"})
    expect_done(run_->adtrain(two + "two-parts --shard " + shard + "/3"));
  expect_done(run_->shell("$adtrain merge two-parts/part-* --output two-merged"));
  expect_equal("two-merged", "two");
  expect_done(run_->mpirun(2, seven + "parts --shard 0/3"));
  const Finished part = run_->adtrain(seven + "parts --shard 2/3 --json 2>/dev/null");
  expect_done(part);
  EXPECT_EQ(json::parse(part.output)["part"]["shard"], "2/3");
  expect_error(run_->shell("$adtrain merge parts/part-* --output merged"), 4,
               AllOf(HasSubstr("samples 2 to 3 of 7 are missing"), HasSubstr("--shard 1/3")));
  EXPECT_FALSE(std::filesystem::exists(run_->folder() / "merged"));
  expect_done(run_->adtrain(seven + "parts --shard 1/3"));
  const Finished merged = run_->shell("$adtrain merge parts/part-* --output merged");
  expect_done(merged);
  EXPECT_THAT(merged.output, HasSubstr("Merged 7 results"));
  expect_equal("merged", "one");

  // Parts of one scoring alone, and nothing in the place of other results.
  expect_error(run_->adtrain(seven + "parts --shard 1/3"), 2, HasSubstr("holds scores already"));
  expect_error(run_->shell("$adtrain merge parts/part-* --output merged"), 2, HasSubstr("--overwrite"));
  std::string older = seven + "parts --shard 1/3 --overwrite";
  older.replace(older.find("runs/small"), 10, "runs/small/checkpoints/step-10");
  expect_done(run_->adtrain(older));
  expect_error(run_->shell("$adtrain merge parts/part-* --output merged --overwrite"), 4,
               AllOf(HasSubstr("part-1-of-3 is of other weights"), HasSubstr("checkpoint_")));
  expect_equal("merged", "one");
}

TEST_F(Score, In16BitsTheBytesAreTheSameOnAnyNumberOfRanksToo) {
  for (const std::string type : {"bf16", "fp16"}) {
    const std::string rounded =
        arguments("--set max_samples=90 --set torch_dtype=" + type + " --set output_dir=");
    expect_done(run_->adtrain(rounded + "alone-" + type));
    expect_done(run_->mpirun(3, rounded + "ranks-" + type));
    expect_equal("ranks-" + type, "alone-" + type);
    EXPECT_EQ(json::parse(run_->read("alone-" + type + "/summary.json"))["scored"]["precision"], type);
  }
  expect_done(run_->adtrain(arguments("--set max_samples=90 --set output_dir=mixed --shard 0/2")));
  expect_done(
      run_->adtrain(arguments("--set max_samples=90 --set output_dir=mixed --shard 1/2 --set "
                              "torch_dtype=bfloat16")));
  expect_error(run_->shell("$adtrain merge mixed/part-* --output merged-mixed"), 4, HasSubstr("precision"));

  // Evaluations, too, compute in that type, and have a folder of their own.
  const std::string evaluate =
      "evaluate runs/small --set torch_dtype=bf16 --set eval_batch=2 --set eval_seed=";
  expect_done(run_->adtrain(evaluate + "5"));
  const std::string folder = "runs/small/evaluation/test-step-20-bf16-seed-5";
  EXPECT_EQ(json::parse(run_->read(folder + "/summary.json"))["precision"], "bf16");
  const std::string returns = run_->read(folder + "/reward_episode.npy");
  std::filesystem::remove_all(run_->folder() / folder);
  expect_done(run_->mpirun(2, evaluate + "5"));
  EXPECT_TRUE(run_->read(folder + "/reward_episode.npy") == returns);
}

TEST_F(Score, TheRunsOwnHistoriesAreScoredTaskByTask) {
  const Finished finished = run_->adtrain(
      "score runs/small/ --json --set score_tasks=all --set batch_size=5 --set score_stride=9 "
      "--set bnb_4bit_quant_type=fp4 2> said");
  expect_done(finished);
  EXPECT_THAT(run_->read("said"), HasSubstr("bnb_4bit_quant_type has no effect"));
  const json summary = json::parse(finished.output);
  EXPECT_EQ(summary["samples"], 25 * 10 * 8);
  ASSERT_EQ(summary["tasks"].size(), 25U);
  EXPECT_EQ(summary["held_out"]["samples"], 5 * 10 * 8);
  EXPECT_EQ(summary["trained"]["samples"], 20 * 10 * 8);
  expect_true_scores("runs/small/scores/history_darkroom_PPO_alg-seed1-step-20");
  const Finished ranks =
      run_->mpirun(3,
                   "score runs/small --json --set score_tasks=all --set batch_size=5 --set score_stride=9 "
                   "--set output_dir=others");
  expect_done(ranks);
  expect_equal("others", "runs/small/scores/history_darkroom_PPO_alg-seed1-step-20");
}

TEST_F(Score, MistakesAreNamed) {
  expect_error(run_->adtrain("score runs/smal"), 5, HasSubstr("runs/smal is neither a run nor"));
  expect_error(run_->adtrain("score runs/small histories/history_darkroom_PPO_alg-seed2.hdf5"), 4,
               AllOf(HasSubstr("seed2.hdf5 does not exist"), HasSubstr("did you mean")));
  expect_error(run_->adtrain(arguments("other.hdf5")), 2, HasSubstr("found 2 files of histories"));
  expect_error(run_->adtrain(arguments("--set batch_size=0 --set score_tasks=25")), 2,
               AllOf(HasSubstr("score_batch"), HasSubstr("auto")));
  const std::string elsewhere = "--set output_dir=elsewhere --set ";
  expect_error(run_->adtrain(arguments(elsewhere + "train_env_ratio=1")), 4,
               AllOf(HasSubstr("all of which the run has trained on"), HasSubstr("score_tasks=all")));
  expect_error(run_->adtrain(arguments(elsewhere + "train_source_timesteps=15")), 4,
               HasSubstr("no samples: a history of 15 steps"));
  expect_error(
      run_->adtrain("score runs/small " ADTRAIN_SOURCE_DIR "/data/history_darkroom_PPO_alg-seed0.hdf5"), 4,
      HasSubstr("holds tasks of grid_size 7, and the run was trained on tasks of grid_size 5"));
  run_->write("empty.hdf5", "");
  expect_error(run_->adtrain("score runs/small empty.hdf5"), 4, HasSubstr("empty.hdf5"));
  expect_error(run_->adtrain("merge runs/small"), 2, HasSubstr("missing --output"));
  expect_error(run_->adtrain("merge runs/small --output x"), 4,
               AllOf(HasSubstr("runs/small holds no complete scoring: summary.json is not there"),
                     Not(HasSubstr("did you mean"))));
  expect_error(run_->adtrain("score runs/small histories/"), 4,
               AllOf(HasSubstr("histories/: a folder; expected a file"), Not(HasSubstr("no such file"))));
  expect_error(run_->adtrain(arguments("--set score_tasks=tests")), 2,
               AllOf(HasSubstr("expected test, train, all, or numbers"), HasSubstr("did you mean test?")));
  EXPECT_FALSE(std::filesystem::exists(run_->run() / "scores" / "empty-step-20" / "summary.json"));
  EXPECT_FALSE(std::filesystem::exists(run_->folder() / "elsewhere")) << "nothing was scored into it";
}

TEST_F(Score, OfTwoIntoOneFolderTheLaterReplacesNothing) {
  const std::string shared =
      "$adtrain " + arguments("--set score_tasks=all --set batch_size=1 --set output_dir=shared ");
  const Finished both = run_->shell(
      kAwait +
      (shared + "> later 2>&1 & await grep -qs 'weights frozen' later; kill -STOP $!; " + shared +
       "--set max_samples=3; echo \"first $?\"; kill -CONT $!; wait $!; echo \"later $?\"; cat later"));
  EXPECT_THAT(both.output,
              AllOf(HasSubstr("first 0"), HasSubstr("later 2"), HasSubstr("shared holds scores already")));
  EXPECT_EQ(json::parse(run_->read("shared/summary.json"))["samples"], 3);
}

TEST_F(Score, PartsOfAnotherSplitAreNotMerged) {
  const std::string all = arguments("--set score_tasks=all --set max_samples=50 --set output_dir=splits ");
  expect_done(run_->adtrain(all + "--shard 0/2"));
  expect_done(run_->adtrain(all + "--shard 1/2 --set env_split_seed=9"));
  expect_error(run_->shell("$adtrain merge splits/part-* --output merged-splits"), 4,
               AllOf(HasSubstr("part-1-of-2 is of other settings than splits/part-0-of-2"),
                     HasSubstr("env_split_seed is 9, and there 0")));
}

TEST_F(Score, NoticesOfTheConfigurationAreShown) {
  const auto without_effect = HasSubstr("llm_int8_threshold has no effect: it is for load_in_8bit: true");
  const Finished scored =
      run_->adtrain(arguments("--set max_samples=5 --set output_dir=noticed --set llm_int8_threshold=6"));
  expect_done(scored);
  EXPECT_THAT(scored.output, without_effect);
  const Finished evaluated = run_->adtrain("evaluate runs/small --set llm_int8_threshold=6");
  expect_done(evaluated);
  EXPECT_THAT(evaluated.output, without_effect);
}

constexpr const char* kOwn = R"(env: rooms
histories: domains
train_tasks: 0-2
window_margin: 1
normalize_observations: true
transformer_block: vintix
tf_n_embd: 16
tf_n_layer: 1
tf_n_head: 2
n_transit: 24
tf_dropout: 0
train_timesteps: 4
global_batch_size: 8
ckpt_interval: 4
run_name: own
cpu_threads: 1
device: cpu
)";

TEST_F(Score, TasksOfAnySpaceAreScoredInTheGroupsOfTheModel) {
  expect_done(write_own_histories(*run_));
  run_->write("own.yaml", kOwn);
  expect_done(run_->adtrain("own.yaml"));
  const std::string all = "score runs/own --set score_tasks=all --set score_stride=40 --set batch_size=7 ";
  expect_done(run_->adtrain(all + "--set output_dir=own-one"));
  expect_true_scores("own-one");
  const json summary = json::parse(run_->read("own-one/summary.json"));
  EXPECT_EQ(summary["scored"]["loss"], "squared_error");
  EXPECT_EQ(summary["tasks"].size(), 4U);
  EXPECT_FALSE(summary.contains("accuracy"));
  EXPECT_EQ(summary["held_out"]["samples"], 2 * 11);
  expect_done(run_->mpirun(3, all + "--set output_dir=own-three"));
  expect_equal("own-three", "own-one");

  // Held out is what training has not seen; other spaces are left out, or refused where there are no others.
  const Finished held_out = run_->adtrain(
      "score runs/own domains/mujoco/ant domains/mujoco/walker xland.hdf5 "
      "--json --set max_samples=9 --set output_dir=own-walker 2>/dev/null");
  expect_done(held_out);
  const json walker = json::parse(held_out.output);
  ASSERT_EQ(walker["tasks"].size(), 1U);
  EXPECT_EQ(walker["tasks"][0]["name"], "walker");
  expect_error(run_->adtrain("score runs/own xland.hdf5"), 4,
               AllOf(HasSubstr("no task of the spaces that the model was trained for"), HasSubstr("Box((6,)"),
                     HasSubstr("Discrete(6)")));
  expect_error(run_->adtrain("score runs/own --set score_tasks=1,9"), 2,
               AllOf(HasSubstr("score_tasks: found 9"), HasSubstr("the tasks 0-3")));
}

}  // namespace
}  // namespace adtrain
