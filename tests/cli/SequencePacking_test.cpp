#include <cmath>
#include <memory>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "OwnHistories.h"
#include "SmallRun.h"
#include "support/Python.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kConfiguration = R"(env: rooms
histories: short
history_group: mujoco
train_tasks: 1-2
sequence_packing: true
loss_positions: all
transformer_block: vintix
tf_n_embd: 16
tf_n_layer: 2
tf_n_head: 2
n_transit: 48
tf_dropout: 0
tf_attn_dropout: 0
normalize_observations: true
lr: 1.0e-2
train_timesteps: 30
global_batch_size: 8
test_batch_size: 4
num_workers: 2
cpu_threads: 1
summary_interval: 1
eval_interval: 15
ckpt_interval: 15
device: cpu
)";

/// Runs on histories most of which are shorter than the context.
class SequencePacking : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    run_ = std::make_unique<SmallRun>();
    const Finished written = write_own_histories(*run_);
    ASSERT_EQ(written.exit_code, 0) << written.output;
    run_->write("short.yaml", kConfiguration);
  }
  static void TearDownTestSuite() { run_.reset(); }

  static std::vector<double> losses(const std::string& name) {
    std::vector<double> values;
    for (const auto& record : run_->metrics(name, "loss")) values.push_back(record["loss"].get<double>());
    return values;
  }

  static std::unique_ptr<SmallRun> run_;
};

std::unique_ptr<SmallRun> SequencePacking::run_;

TEST_F(SequencePacking, TheLossFallsAndIsThatOfAnyNumberOfRanks) {
  const Finished whole = run_->mpirun(2, "short.yaml --set run_name=whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_THAT(whole.output,
              AllOf(HasSubstr("rows of 48 transitions, "), HasSubstr("are no padding: 26 windows"),
                    HasSubstr("of 48 packed histories; of 50 histories of 2 tasks")));
  const std::vector<double> all = losses("whole");
  ASSERT_EQ(all.size(), 30U);
  const auto mean = [&](std::ptrdiff_t first) {
    return std::accumulate(all.begin() + first, all.begin() + first + 8, 0.0) / 8;
  };
  EXPECT_LT(mean(22), 0.9 * mean(0));
  EXPECT_EQ(run_->metrics("whole", "test_loss").size(), 2U);

  ASSERT_EQ(run_->mpirun(2, "short.yaml --set run_name=parts --stop-after 15").exit_code, 75);
  const Finished resumed =
      run_->mpirun(2, "short.yaml --set run_name=parts --resume --set num_workers=0 --set history_cache=0");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(losses("parts"), all);
  EXPECT_TRUE(run_->state("parts", 30) == run_->state("whole", 30));

  // Micro-batches have other numbers of steps that are no padding; the mean is over all of them.
  for (const char* accumulation : {"1", "4"}) {
    SCOPED_TRACE(accumulation);
    const std::string name = std::string("one-") + accumulation;
    const Finished one = run_->adtrain("short.yaml --set run_name=" + name + " --stop-after 15 --set " +
                                       "gradient_accumulation_steps=" + accumulation);
    ASSERT_EQ(one.exit_code, 75) << one.output;
    const std::vector<double> found = losses(name);
    ASSERT_EQ(found.size(), 15U);
    for (size_t step = 0; step < found.size(); ++step) EXPECT_NEAR(found[step], all[step], 1e-4) << step;
  }
}

TEST_F(SequencePacking, WithDropoutRanksShardingAndRecomputationChangeRoundingAlone) {
  const std::string start =
      "short.yaml --set tf_dropout=0.3 --set tf_attn_dropout=0.3 --set num_warmup_steps=0 "
      "--set train_timesteps=8 --set eval_interval=0 --set run_name=";
  const Finished one = run_->adtrain(start + "dropping");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const std::vector<double> expected = losses("dropping");
  ASSERT_EQ(expected.size(), 8U);
  ASSERT_EQ(run_->adtrain(start + "keeping --set tf_dropout=0 --set tf_attn_dropout=0").exit_code, 0);
  EXPECT_GT(std::abs(losses("keeping").back() - expected.back()), 1e-3);

  const auto expect_equal = [&](const std::string& name, const Finished& run) {
    SCOPED_TRACE(name);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const std::vector<double> found = losses(name);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t step = 0; step < found.size(); ++step) EXPECT_NEAR(found[step], expected[step], 1e-4) << step;
  };
  expect_equal("ranks", run_->mpirun(2, start + "ranks --set gradient_accumulation_steps=2"));
  expect_equal("sharded", run_->mpirun(2, start + "sharded --set shard_optimizer=true"));
  expect_equal("again", run_->adtrain(start + "again --set recompute=block"));
  expect_equal("all", run_->mpirun(2, start + "all --set shard_optimizer=true --set recompute=mlp"));
}

TEST_F(SequencePacking, RowsAreOfOneGroupOfSpacesEach) {
  const Finished both = run_->adtrain(
      "short.yaml --set run_name=groups --set history_group=null --set train_tasks=0-3 --set "
      "train_timesteps=20");
  ASSERT_EQ(both.exit_code, 0) << both.output;
  EXPECT_THAT(both.output, HasSubstr("of 4 tasks in 2 groups of equal spaces"));
  const std::vector<double> all = losses("groups");
  ASSERT_EQ(all.size(), 20U);
  EXPECT_LT(all.back(), all.front());
}

TEST_F(SequencePacking, ValidateSaysHowFullRowsAre) {
  const Finished text = run_->adtrain("validate short.yaml");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_THAT(text.output,
              AllOf(HasSubstr("# sequence packing: "), HasSubstr("rows of 48 packed histories")));
  const Finished document =
      run_->adtrain("validate short.yaml --json --set device=auto --set mixed_precision=bf16");
  ASSERT_EQ(document.exit_code, 0) << document.output;
  const json report = json::parse(document.output);
  const json& packing = report["own_tasks"]["sequence_packing"];
  EXPECT_EQ(packing["packed_histories"], 48);
  EXPECT_GT(packing["fill_rate"].get<double>(), 0.85);
  EXPECT_LE(packing["fill_rate"].get<double>(), 1.0);
  EXPECT_THAT(report["kernels"].dump(), HasSubstr("sequence_packing puts several histories into one"));
}

TEST_F(SequencePacking, WithoutItShortHistoriesAreLeftOut) {
  const Finished text = run_->adtrain("validate short.yaml --set sequence_packing=false");
  EXPECT_THAT(text.output, HasSubstr("# windows: 26 of 50 histories"));
  const Finished none = run_->adtrain("validate short.yaml --set sequence_packing=false --set n_transit=70");
  EXPECT_EQ(none.exit_code, 4) << none.output;
  EXPECT_THAT(none.output, AllOf(HasSubstr("no window: 60 steps"),
                                 HasSubstr("in training at all positions sequence_packing: true")));
}

}  // namespace
}  // namespace adtrain
