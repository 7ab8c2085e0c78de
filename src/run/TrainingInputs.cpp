#include "run/TrainingInputs.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include "collectives/Agreement.h"

namespace adtrain {

TrainingInputs::TrainingInputs(const RunConfig& config, const Ranks& ranks)
    : tasks_(TrainingTasks::of(config)),
      histories_(load_histories(config, tasks_.trained, config.data.train_n_stream)),
      windows_(histories_, config.window_shape(config.training.loss_positions)) {
  if (!tasks_.held_out.empty()) {
    held_out_.emplace(load_histories(config, tasks_.held_out, 1));
    held_out_windows_.emplace(*held_out_, config.window_shape(LossPositions::kLast));
  }
  at::globalContext().setAllowTF32CuBLAS(config.training.tf32);
  at::globalContext().setDeterministicAlgorithms(config.training.deterministic, /*warn_only=*/false);
  check_same(*ranks.communicator,
             fmt::format("the digest of the histories in {}", config.history_file().string()),
             histories_.digest() + (held_out_ ? held_out_->digest() : ""));
  model_ = AlgorithmDistillation::create(config.model, config.model_shape(),
                                         static_cast<uint64_t>(config.training.seed));
  model_->parameters().to(ranks.device.device, config.training.compute_type(ranks.device.device));
}

}  // namespace adtrain
