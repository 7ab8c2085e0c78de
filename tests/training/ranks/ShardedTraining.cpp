#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "training/Trainer.h"
#include "training/ranks/SmallTraining.h"

// Inside every rank: steps of a sharded optimizer beside those of one that updates everything on each rank.

namespace adtrain {
namespace {

using ShardedTraining = OnRanks;

/// How gradients are clipped follows from sums over shards, in another order than those over all of them. So
/// results are equal bit for bit where no clipping takes place, and the sums over ranks are.
TEST_F(ShardedTraining, TrainsToTheParametersOfTheWholeOptimizer) {
  if (ranks().device.is_cuda()) GTEST_SKIP() << "precisions have a test of their own";
  constexpr double kNever = 0, kNoNeed = 1e9, kAlways = 0.05;
  for (const double max_grad_norm : {kNever, kNoNeed, kAlways}) {
    for (const int64_t accumulation : {1, 3}) {
      Settings settings = {.max_grad_norm = max_grad_norm, .accumulation = accumulation};
      const at::Tensor whole = parameters_after(settings, 5);
      settings.shards = true;
      const bool exactly = sums_are_equal() && max_grad_norm != kAlways;
      expect_equal(parameters_after(settings, 5), whole, exactly,
                   "max_grad_norm " + std::to_string(max_grad_norm) + ", accumulation " +
                       std::to_string(accumulation));
    }
  }
  EXPECT_GT(
      (parameters_after({.max_grad_norm = kAlways}, 5) - parameters_after({}, 5)).abs().max().item<double>(),
      1e-4)
      << "the norm matters";
}

TEST_F(ShardedTraining, HoldsAShareOfTheMoments) {
  Training whole(Settings{}), sharded(Settings{.shards = true});
  const int64_t world_size = sharded.share.world_size;
  EXPECT_EQ(sharded.optimizer.sharded(), world_size > 1);
  at::Tensor bytes = at::full({1}, sharded.optimizer.bytes(), at::kLong);
  ranks().communicator->all_reduce(bytes, ReduceOp::kSum);
  EXPECT_EQ(bytes.item<int64_t>(), whole.optimizer.bytes()) << "all shards are the whole";
  if (world_size > 1) {
    EXPECT_LT(sharded.optimizer.bytes(), whole.optimizer.bytes());
  }
}

/// Frozen parameters are in no bucket and no shard: what each rank has of moments, and what all have learned.
TEST_F(ShardedTraining, FrozenParametersArePartOfNoShard) {
  const bool on_gpu = ranks().device.is_cuda();
  Settings settings = {.max_grad_norm = 0,
                       .type = on_gpu ? at::kBFloat16 : at::kFloat,
                       .freeze = "transformer.blocks.0,*.norm_1,embed_context.bias"};
  Training whole(settings);
  const at::Tensor flat = whole.model->parameters().flat();
  const int64_t frozen = flat.numel() - whole.model->parameters().trained_of(flat).numel();
  const at::Tensor before = flat.narrow(0, 0, frozen).cpu().clone();
  whole.start();
  whole.take_steps(5);
  const at::Tensor expected = whole.parameters();
  EXPECT_TRUE(at::equal(expected.narrow(0, 0, frozen), before)) << "what is frozen lies in front";
  settings.shards = true;
  Training sharded(settings);
  sharded.start();
  sharded.take_steps(2);
  const Snapshot snapshot = sharded.copied_snapshot();
  sharded.take_steps(3);
  EXPECT_LE((sharded.parameters() - expected).abs().max().item<double>(), sums_are_equal() ? 0
                                                                          : on_gpu         ? 2e-3
                                                                                           : 2e-6);
  at::Tensor bytes = at::full({1}, sharded.optimizer.bytes(), at::kLong);
  if (sharded.optimizer.sharded()) ranks().communicator->all_reduce(bytes, ReduceOp::kSum);
  EXPECT_EQ(bytes.item<int64_t>(), 2 * 4 * (flat.numel() - frozen));

  settings.freeze = "transformer.blocks.1";
  settings.seed = 4;
  Training other(settings);
  other.start(&snapshot);
  EXPECT_EQ(other.state.progress.step, 2);
  other.take_steps(1);
  EXPECT_TRUE(other.state.finite());
}

/// Captured and eager, in every precision: fp16 begins with a scale at which steps overflow.
TEST_F(ShardedTraining, TrainsToTheSameParametersOnGpus) {
  if (ranks().device.is_cpu()) GTEST_SKIP() << "no GPU";
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const CudaGraphUse use : {CudaGraphUse::kOff, CudaGraphUse::kOn}) {
      Settings settings = {.accumulation = 3, .type = type, .cuda_graph = use};
      const at::Tensor whole = parameters_after(settings, 8);
      settings.shards = true;
      Training sharded(settings);
      sharded.start();
      sharded.take_steps(8);
      const std::string what =
          std::string(c10::toString(type)) + (use == CudaGraphUse::kOn ? ", captured" : ", eager");
      EXPECT_EQ(sharded.step.captured(), use == CudaGraphUse::kOn) << what;
      const double difference = (sharded.parameters() - whole).abs().max().item<double>();
      EXPECT_LE(difference, type == at::kFloat ? 1e-5 : 2e-3) << what;
      if (type == at::kFloat) continue;
      EXPECT_TRUE(
          at::equal(sharded.model->parameters().low_precision(), sharded.model->parameters().flat().to(type)))
          << what << ": what ranks receive is what their owners have, rounded";
    }
  }
}

/// A checkpoint has nothing of the number of ranks or of how the optimizer was divided.
TEST_F(ShardedTraining, CheckpointsAreWholeAndLoadEitherWay) {
  const bool on_gpu = ranks().device.is_cuda();
  std::vector<Snapshot> snapshots;
  for (const bool saved_by : {false, true}) {
    const Settings settings = {
        .shards = saved_by, .max_grad_norm = 0, .type = on_gpu ? at::kHalf : at::kFloat};
    Training run(settings);
    run.start();
    run.take_steps(3);
    EXPECT_TRUE(run.state.finite());
    snapshots.push_back(run.copied_snapshot());
    const Snapshot& snapshot = snapshots.back();
    if (saved_by && run.optimizer.sharded()) {
      EXPECT_EQ(snapshot.optimizer.empty(), !ranks().communicator->is_root());
      const Optimizer::Moments gathered = run.optimizer.moments_on_root();
      if (ranks().communicator->is_root()) {
        EXPECT_TRUE(gathered.first.is_cpu() && gathered.second.is_cpu());
      }
    }
    run.take_steps(3);
    const at::Tensor uninterrupted = run.parameters();
    for (const bool resumed_by : {false, true}) {
      Settings other = settings;
      other.shards = resumed_by;
      other.seed = 4;
      Training resumed(other);
      resumed.start(&snapshot);
      EXPECT_EQ(resumed.state.progress.step, 3);
      resumed.take_steps(3);
      // What is resumed as it was saved repeats bit for bit.
      const bool exactly = saved_by == resumed_by ? !on_gpu : sums_are_equal();
      const double tolerance = exactly ? 0 : on_gpu ? 2e-3 : 2e-6;
      EXPECT_LE((resumed.parameters() - uninterrupted).abs().max().item<double>(), tolerance)
          << "saved " << (saved_by ? "sharded" : "whole") << ", resumed "
          << (resumed_by ? "sharded" : "whole");
    }
  }
  if (!ranks().communicator->is_root()) return;
  const auto expect_alike = [&](const std::vector<NamedTensor>& whole,
                                const std::vector<NamedTensor>& sharded) {
    ASSERT_EQ(whole.size(), sharded.size());
    for (size_t index = 0; index < whole.size(); ++index) {
      EXPECT_EQ(whole[index].name, sharded[index].name);
      const at::Tensor &a = whole[index].tensor, &b = sharded[index].tensor;
      ASSERT_EQ(a.sizes(), b.sizes());
      EXPECT_TRUE(sums_are_equal() ? at::equal(a, b) : at::allclose(a, b, 1e-3, on_gpu ? 1e-3 : 1e-6))
          << whole[index].name;
    }
  };
  expect_alike(snapshots[0].model, snapshots[1].model);
  expect_alike(snapshots[0].optimizer, snapshots[1].optimizer);
}

/// Loses the save of step 4 and asks for step 5.
struct LosingKeeper final : StepKeeper {
  std::vector<int64_t> given;
  std::vector<size_t> tensors;  ///< of the optimizer, in each of these steps

  void save(const Snapshot& snapshot, bool) override {
    given.push_back(snapshot.step);
    tensors.push_back(snapshot.optimizer.size());
  }
  void measured(int64_t, const ReturnFigures&) override {}
  bool wants_step() override { return given == std::vector<int64_t>{4}; }
  std::optional<int64_t> safe_step() const override { return std::nullopt; }
};

/// A save out of turn is rank 0's wish, and takes all ranks.
TEST_F(ShardedTraining, StepsAreSavedWheneverTheKeeperAsks) {
  Training run(Settings{.shards = true});
  LosingKeeper keeper;
  Console console{{.enabled = false}};
  TrainingLog log{console, std::nullopt};
  TrainingOptions options;
  options.train_timesteps = 9;
  options.train_batch_size = 4;
  options.ckpt_interval = 4;
  options.summary_interval = 3;
  Trainer trainer(options, small_buckets(true), {},
                  {.model = *run.model,
                   .communicator = *ranks().communicator,
                   .training_windows = run.windows,
                   .held_out_windows = nullptr,
                   .keeper = keeper,
                   .log = log,
                   .origin = {}});
  trainer.start_from(nullptr);
  EXPECT_EQ(trainer.run(StopRequest()), Trainer::End::kFinished);
  if (!ranks().communicator->is_root()) {
    EXPECT_TRUE(keeper.given.empty());
    return;
  }
  EXPECT_EQ(keeper.given, (std::vector<int64_t>{4, 5, 8, 9}));
  const size_t moments = 2 * run.model->parameters().leaves().size();
  for (const size_t tensors : keeper.tensors) EXPECT_EQ(tensors, moments + 1);
}

}  // namespace
}  // namespace adtrain
