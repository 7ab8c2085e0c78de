#include "training/TrainStep.h"

#include <mutex>

#include <ATen/ATen.h>

#include "base/Random.h"

namespace adtrain {
namespace {

void seed_generator(const at::Device& device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

TrainStep::TrainStep(AlgorithmDistillation& model, GradientReducer& reducer, Optimizer& optimizer,
                     BatchShare share, const TrainingOptions& options)
    : model_(model),
      reducer_(reducer),
      optimizer_(optimizer),
      share_(share),
      loss_positions_(options.loss_positions),
      dropout_seed_(seed_of(static_cast<uint64_t>(options.seed), 0xd509, share.rank)) {}

void TrainStep::run(BatchSource& batches, int64_t step, double learning_rate) {
  reducer_.zero();
  for (int64_t micro_step = 0; micro_step < share_.accumulation; ++micro_step) {
    const Batch batch = batches.next();
    seed_generator(model_.parameters().flat().device(), seed_of(dropout_seed_, step, micro_step));
    const bool last = micro_step + 1 == share_.accumulation;
    reducer_.begin_micro_step(/*communicates=*/last);
    const AlgorithmDistillation::Loss loss = model_.loss(batch, loss_positions_, /*training=*/true);
    const int64_t global_targets = loss.targets * share_.accumulation * share_.world_size;
    (loss.sum / static_cast<double>(global_targets)).backward();
    losses_.add(loss);
  }
  reducer_.finish();
  optimizer_.step(reducer_.flat_gradient(), learning_rate);
}

}  // namespace adtrain
