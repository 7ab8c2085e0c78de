#include "training/TrainingState.h"

#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Gpu.h"

namespace adtrain {
namespace {

/// A small model with its optimizer and state.
struct Subject {
  explicit Subject(uint64_t seed, at::Device device = at::kCPU)
      : model(created(seed, device)),
        optimizer(model->parameters().flat(), TrainingOptions{}),
        state(*model, optimizer) {}

  static ModelOptions options() {
    ModelOptions small;
    small.tf_n_embd = 8;
    small.tf_n_layer = 1;
    small.tf_n_head = 2;
    small.tf_n_inner = 16;
    small.n_transit = 8;
    return small;
  }

  static std::unique_ptr<AlgorithmDistillation> created(uint64_t seed, at::Device device) {
    auto model = AlgorithmDistillation::create(options(), {5, 5}, seed);
    model->parameters().to(device);
    return model;
  }

  std::unique_ptr<AlgorithmDistillation> model;
  Optimizer optimizer;
  TrainingState state;
};

TEST(TrainingState, ASnapshotRestoresEverythingIntoAnotherRun) {
  Subject saved(1), restored(2);
  saved.optimizer.set_learning_rate(1e-2);
  at::Tensor gradient = at::zeros_like(saved.model->parameters().flat());
  for (const auto& [name, view] : saved.model->parameters().views_of(gradient)) at::Tensor(view).normal_();
  saved.optimizer.step(gradient);
  saved.state.progress = {7, 700};
  const Snapshot snapshot = saved.state.snapshot({{"note", "kept"}});
  EXPECT_EQ(snapshot.state.at("note"), "kept");

  restored.state.restore(snapshot);
  EXPECT_EQ(restored.state.progress.step, 7);
  EXPECT_EQ(restored.state.progress.samples_drawn, 700);
  EXPECT_TRUE(restored.model->parameters().flat().equal(saved.model->parameters().flat()));
  EXPECT_TRUE(restored.optimizer.first_moment().equal(saved.optimizer.first_moment()));
  EXPECT_TRUE(restored.optimizer.second_moment().equal(saved.optimizer.second_moment()));
  EXPECT_EQ(restored.optimizer.step_count().item<float>(), 1.0F);
}

void expect_finds_what_is_not_finite(at::Device device) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
    for (const int where : {0, 1, 2}) {
      Subject subject(1, device);
      EXPECT_TRUE(subject.state.finite());
      const at::Tensor flat[] = {subject.model->parameters().flat().detach(),
                                 subject.optimizer.first_moment(), subject.optimizer.second_moment()};
      flat[where][flat[where].numel() / 2].fill_(value);
      EXPECT_FALSE(subject.state.finite()) << value << " in buffer " << where;
    }
  }
}

TEST(TrainingState, KnowsWhetherAllOfItIsFinite) {
  expect_finds_what_is_not_finite(at::kCPU);
}

TEST(TrainingState, KnowsSoOnAGpu) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  expect_finds_what_is_not_finite(at::Device(at::kCUDA, 0));
}

TEST(TrainingState, AnyMissingPieceIsACheckpointErrorThatNamesIt) {
  Subject saved(1), restored(2);
  const at::Tensor before = restored.model->parameters().flat().clone();

  Snapshot without_moment = saved.state.snapshot({});
  std::erase_if(without_moment.optimizer,
                [](const NamedTensor& tensor) { return tensor.name == "exp_avg.pred_action.bias"; });
  Snapshot without_cursor = saved.state.snapshot({});
  without_cursor.state.erase("samples_drawn");
  for (const auto& [snapshot, name] :
       {std::pair(without_moment, "exp_avg.pred_action.bias"), {without_cursor, "samples_drawn"}}) {
    try {
      restored.state.restore(snapshot);
      FAIL() << "expected a CheckpointError about " << name;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(name));
    }
  }
  EXPECT_TRUE(restored.model->parameters().flat().equal(before))
      << "nothing is copied where something is missing";
}

}  // namespace
}  // namespace adtrain
