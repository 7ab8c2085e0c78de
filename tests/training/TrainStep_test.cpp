#include "training/TrainStep.h"

#include <cmath>
#include <limits>
#include <memory>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "collectives/SingleCommunicator.h"
#include "data/HistorySet.h"
#include "data/TransitionWindows.h"

namespace adtrain {
namespace {

/// Steps with a loss scale on the CPU, where the forward pass of one of them overflows, as fp16's may.
TEST(TrainStep, AnOverflowInASkippedStepSpoilsNoFigures) {
  const HistorySet histories = HistorySet::random(5, 200, {9, 5}, 1);
  const TransitionWindows windows(histories, {.steps = 200, .horizon = 20, .length = 8});
  SingleCommunicator communicator(at::kCPU);
  ModelOptions model_options;
  model_options.tf_n_embd = 8;
  model_options.tf_n_layer = 1;
  model_options.tf_n_head = 2;
  model_options.tf_n_inner = 16;
  model_options.n_transit = 8;
  const auto model = AlgorithmDistillation::create(model_options, {}, 3);
  const TrainingOptions options;
  const BatchShare share = {.micro_batch = 4, .accumulation = 2};
  const auto batches = BatchSource::create(
      {.windows = windows, .order = SampleOrder(windows.samples(), 5), .share = share, .first_sample = 0}, {},
      at::kCPU);
  GradientReducer reducer(model->parameters().leaves(), communicator, {});
  Optimizer optimizer(model->parameters().flat(), options);
  LossScale loss_scale(at::kCPU);
  TrainStep step({.model = *model,
                  .communicator = communicator,
                  .reducer = reducer,
                  .optimizer = optimizer,
                  .loss_scale = &loss_scale},
                 share, options);

  step.run(*batches, 0, 1e-3);
  const at::Tensor flat = model->parameters().flat().detach();
  const at::Tensor good = flat.clone();
  flat.fill_(std::numeric_limits<float>::infinity());
  step.run(*batches, 1, 1e-3);
  EXPECT_EQ(loss_scale.skipped_steps(), 1);
  EXPECT_TRUE(at::isfinite(optimizer.first_moment()).all().item<bool>());
  flat.copy_(good);
  step.run(*batches, 2, 1e-3);

  const LossFigures figures = step.losses().take_merged(communicator);
  EXPECT_TRUE(std::isfinite(figures.loss)) << figures.loss;
  EXPECT_NEAR(figures.loss, std::log(5.0), 1);
  EXPECT_EQ(figures.non_finite_batches, 2) << "both micro-batches of the skipped step";
  EXPECT_EQ(figures.targets, 2 * 2 * 4);
  EXPECT_TRUE(at::isfinite(flat).all().item<bool>());
}

}  // namespace
}  // namespace adtrain
