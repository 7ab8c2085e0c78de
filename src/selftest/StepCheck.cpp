#include "selftest/StepCheck.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Checksum.h"
#include "base/Clock.h"
#include "base/Random.h"
#include "base/Text.h"
#include "collectives/Agreement.h"
#include "data/BatchSource.h"
#include "data/HistorySet.h"
#include "data/TransitionWindows.h"
#include "model/AlgorithmDistillation.h"
#include "parallel/GradientReducer.h"
#include "training/Optimizer.h"
#include "training/TrainStep.h"

namespace adtrain {
namespace {

constexpr int64_t kHistories = 16;

/// A checksum of a dense tensor's bits, on the CPU.
std::string checksum(const at::Tensor& tensor) {
  return checksum_text(tensor.const_data_ptr(), tensor.nbytes());
}

/// Collective.
double largest(Communicator& communicator, double value) {
  at::Tensor tensor = at::full({1}, value, at::kDouble);
  communicator.all_reduce(tensor, ReduceOp::kMax);
  return tensor.item<double>();
}

}  // namespace

std::vector<std::string> StepFigures::faults() const {
  std::vector<std::string> found;
  const std::set<std::string> different(checksums.begin(), checksums.end());
  if (different.size() > 1) {
    std::vector<std::string> held;
    for (size_t rank = 0; rank < checksums.size(); ++rank) {
      held.push_back(fmt::format("{} on rank {}", checksums[rank], rank));
    }
    found.push_back(fmt::format("the updated parameters differ between ranks: {}", join(held, ", ")));
  }
  if (!std::isfinite(loss)) found.push_back(fmt::format("the loss is {}, not a finite number", loss));
  if (!updated) found.emplace_back("the step left the parameters as they were");
  return found;
}

StepFigures check_step(const RunConfig& config, Communicator& communicator) {
  const auto seed = static_cast<uint64_t>(config.training.seed);
  const HistorySet histories =
      HistorySet::random(kHistories, config.data.train_source_timesteps,
                         {config.environment.grid_size, config.environment.num_actions}, seed);
  const TransitionWindows windows(histories, config.window_shape(config.training.loss_positions));
  const ModelShape shape = config.model_shape();
  const auto model = AlgorithmDistillation::create(config.model, shape, seed);
  model->parameters().to(communicator.device());
  const std::string before = checksum(model->parameters().flat().cpu());

  GradientReducer reducer(model->parameters().leaves(), communicator, config.distributed.reducer());
  Optimizer optimizer(model->parameters().flat(), config.training, reducer.shards());
  const BatchShare share = config.training.share(communicator.rank(), communicator.world_size());
  const auto batches =
      BatchSource::create({.windows = windows, .order = SampleOrder(windows.samples(), seed), .share = share},
                          config.data, communicator.device());
  TrainStep step({.model = *model,
                  .communicator = communicator,
                  .reducer = reducer,
                  .optimizer = optimizer,
                  .loss_scale = nullptr},
                 share, config.training);
  communicator.barrier();
  const Stopwatch watch;
  step.run(*batches, 0, config.training.lr);
  communicator.synchronize();

  StepFigures figures;
  const std::string after = checksum(model->parameters().flat().cpu());
  figures.seconds = largest(communicator, watch.seconds());
  figures.parameters = model->parameters().count();
  figures.loss = step.losses().take_merged(communicator).loss;
  figures.checksums = gather_texts(communicator, after);
  figures.updated = largest(communicator, after == before ? 1 : 0) == 0;
  return figures;
}

}  // namespace adtrain
