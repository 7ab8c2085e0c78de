#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "data/HistorySet.h"
#include "data/TransitionWindows.h"
#include "model/FrozenParameters.h"
#include "training/TrainStep.h"
#include "training/TrainingState.h"
#include "training/ranks/ShardedSubjects.h"

/// Training of a little network, for tests inside every rank.
namespace adtrain {

/// Without dropout.
inline ModelOptions little_model() {
  ModelOptions options;
  options.tf_n_embd = 16;
  options.tf_n_layer = 2;
  options.tf_n_head = 2;
  options.tf_n_inner = 32;
  options.n_transit = 8;
  options.tf_dropout = options.tf_attn_dropout = 0;
  return options;
}

struct Settings {
  bool shards = false;
  double max_grad_norm = 1;
  int64_t accumulation = 1;
  int64_t rows_of_rank = 12;
  at::ScalarType type = at::kFloat;
  CudaGraphUse cuda_graph = CudaGraphUse::kOff;
  uint64_t seed = 3;  ///< of the initial weights
  ModelOptions model = little_model();
  LossPositions positions = LossPositions::kLast;
  Communicator* communicator = ranks().communicator;
  std::string freeze = "";
};

/// A small run of the ranks of a communicator.
struct Training {
  explicit Training(const Settings& settings)
      : histories(HistorySet::random(5, 200, {9, 5}, 1)),
        windows(histories, shape(settings)),
        communicator(*settings.communicator),
        share{.rank = communicator.rank(),
              .world_size = communicator.world_size(),
              .micro_batch = settings.rows_of_rank / settings.accumulation,
              .accumulation = settings.accumulation},
        model(created(settings)),
        reducer(model->parameters().trained_leaves(), communicator, small_buckets(settings.shards)),
        optimizer(model->parameters().trained_of(model->parameters().flat()), options(settings),
                  reducer.shards()),
        loss_scale(LossScale::for_type(settings.type, ranks().device)),
        state(*model, optimizer, loss_scale.get()),
        step({.model = *model,
              .communicator = communicator,
              .reducer = reducer,
              .optimizer = optimizer,
              .loss_scale = loss_scale.get()},
             share, options(settings)) {}

  static TrainingOptions options(const Settings& settings) {
    TrainingOptions options;
    options.max_grad_norm = settings.max_grad_norm;
    options.cuda_graph = settings.cuda_graph;
    options.weight_decay = 0.1;
    options.loss_positions = settings.positions;
    return options;
  }
  static WindowShape shape(const Settings& settings) {
    const bool compressed = settings.model.compressed();
    return {.steps = 200,
            .horizon = 20,
            .length = compressed ? 0 : settings.model.n_transit,
            .region = compressed ? settings.model.compress_interval : 0,
            .whole_regions_only = compressed && settings.positions == LossPositions::kAll};
  }
  static std::unique_ptr<AlgorithmDistillation> created(const Settings& settings) {
    auto model = AlgorithmDistillation::create(settings.model, {}, settings.seed);
    freeze(model->parameters(), settings.freeze, "freeze");
    model->parameters().to(ranks().device, settings.type);
    return model;
  }

  /// As Trainer::start_from: rank 0 alone has read the snapshot.
  void start(const Snapshot* snapshot = nullptr) {
    if (snapshot != nullptr && communicator.is_root()) state.restore(*snapshot);
    state.broadcast(communicator);
    batches = BatchSource::create({.windows = windows,
                                   .order = SampleOrder(windows.samples(), 5),
                                   .share = share,
                                   .first_sample = state.progress.samples_drawn},
                                  {}, ranks().device);
  }
  /// What a checkpoint would hold now, on the CPU. The steps that follow do not change it.
  Snapshot copied_snapshot() {
    Snapshot snapshot = state.snapshot({});
    for (auto* tensors : {&snapshot.model, &snapshot.optimizer}) {
      for (NamedTensor& named : *tensors) named.tensor = named.tensor.to(at::kCPU, false, true);
    }
    return snapshot;
  }
  void take_steps(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      step.run(*batches, state.progress.step, 1e-2 / static_cast<double>(state.progress.step + 1));
      ++state.progress.step;
      state.progress.samples_drawn += share.global_batch();
    }
  }
  /// Whole, and the same on all ranks.
  at::Tensor parameters() {
    optimizer.gather_parameters();
    const at::Tensor flat = model->parameters().flat().detach().cpu();
    const at::Tensor all = communicator.all_gather(flat);
    for (int64_t r = 0; r < share.world_size; ++r) EXPECT_TRUE(at::equal(all[r], flat)) << "rank " << r;
    return flat.clone();
  }

  HistorySet histories;
  TransitionWindows windows;
  Communicator& communicator;
  BatchShare share;
  std::unique_ptr<AlgorithmDistillation> model;
  GradientReducer reducer;
  Optimizer optimizer;
  std::unique_ptr<LossScale> loss_scale;
  TrainingState state;
  std::unique_ptr<BatchSource> batches;
  TrainStep step;
};

inline at::Tensor parameters_after(const Settings& settings, int64_t steps) {
  Training run(settings);
  run.start();
  run.take_steps(steps);
  return run.parameters();
}

}  // namespace adtrain
