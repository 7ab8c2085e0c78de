#include "run/TrainingInputs.h"

#include <vector>

#include <ATen/Context.h>
#include <fmt/format.h>

#include "collectives/Agreement.h"
#include "environments/TaskFamily.h"
#include "run/Histories.h"

namespace adtrain {

TrainingInputs::TrainingInputs(const RunConfig& config, const Ranks& ranks)
    : TrainingInputs(config, ranks,
                     TaskSplit::of(config.environment, TaskFamily::of(config.environment).task_count())) {}

TrainingInputs::TrainingInputs(const RunConfig& config, const Ranks& ranks, const TaskSplit& split)
    : holds_out_(!split.test.empty() && config.training.eval_interval > 0),
      histories_(load_histories(config, split.train, config.data.train_n_stream)),
      windows_(histories_, config.window_shape(config.training.loss_positions)),
      held_out_(
          load_histories(config, holds_out_ ? split.test : std::vector<int64_t>{split.train.front()}, 1)),
      held_out_windows_(held_out_, config.window_shape(LossPositions::kLast)) {
  at::globalContext().setAllowTF32CuBLAS(config.training.tf32);
  at::globalContext().setDeterministicAlgorithms(config.training.deterministic, /*warn_only=*/false);
  check_same(*ranks.communicator,
             fmt::format("the digest of the histories in {}", config.history_file().string()),
             histories_.digest() + held_out_.digest());
  model_ = AlgorithmDistillation::create(config.model, config.model_shape(),
                                         static_cast<uint64_t>(config.training.seed));
  model_->parameters().to(ranks.device.device, config.training.compute_type(ranks.device.device));
}

}  // namespace adtrain
