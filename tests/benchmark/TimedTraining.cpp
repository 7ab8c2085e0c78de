#include "benchmark/TimedTraining.h"

#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "benchmark/StepClock.h"

namespace adtrain {
namespace {

/// So many that they do not fit into a GPU's caches: a hundred megabytes for a thousand steps each.
constexpr int64_t kHistories = 8192;
constexpr uint64_t kHistorySeed = 1;

constexpr int64_t kExposureReadings = 7;
constexpr int64_t kStepsBeforeReading = 5;

std::unique_ptr<AlgorithmDistillation> create_model(const RunConfig& config, at::Device device) {
  const ModelShape shape = config.model_shape();
  auto model =
      AlgorithmDistillation::create(config.model, shape, static_cast<uint64_t>(config.training.seed));
  model->parameters().to(device, config.training.compute_type(device));
  return model;
}

/// A lost peer is noticed by the communicator; a group of one waits for nothing.
void wait_for_gpu(Communicator& communicator) {
  communicator.synchronize();
  c10::cuda::getCurrentCUDAStream().synchronize();
}

/// In the place of StopRequest::agreed, without taking over signals.
void agree_to_go_on(Communicator& communicator) {
  if (communicator.world_size() == 1) return;
  at::Tensor stop = at::zeros({1}, at::kLong);
  communicator.all_reduce(stop, ReduceOp::kMax);
}

}  // namespace

TimedTraining::TimedTraining(const RunConfig& config, Communicator& communicator)
    : communicator_(communicator),
      share_(config.training.share(communicator.rank(), communicator.world_size())),
      histories_(HistorySet::random(kHistories, config.data.train_source_timesteps,
                                    {config.environment.grid_size, config.environment.num_actions},
                                    kHistorySeed)),
      windows_(histories_, config.window_shape(config.training.loss_positions)),
      model_(create_model(config, communicator.device())),
      reducer_(model_->parameters().leaves(), communicator, config.distributed.reducer()),
      optimizer_(model_->parameters().flat(), config.training, reducer_.shards()),
      loss_scale_(LossScale::for_type(model_->parameters().compute_type(), communicator.device())),
      batches_(BatchSource::create(
          {.windows = windows_,
           .order = SampleOrder(windows_.samples(), static_cast<uint64_t>(config.training.seed)),
           .share = share_},
          config.data, communicator.device())),
      step_({.model = *model_,
             .communicator = communicator,
             .reducer = reducer_,
             .optimizer = optimizer_,
             .loss_scale = loss_scale_.get()},
            share_, config.training),
      schedule_(config.training.lr, config.training.num_warmup_steps, config.training.train_timesteps) {}

void TimedTraining::take_step() {
  step_.run(*batches_, steps_taken_, schedule_.rate_at(steps_taken_));
  ++steps_taken_;
  agree_to_go_on(communicator_);
}

void TimedTraining::take_steps(int64_t count) {
  for (int64_t step = 0; step < count; ++step) take_step();
  wait_for_gpu(communicator_);
}

TimedTraining::Times TimedTraining::time_steps(int64_t count) {
  wait_for_gpu(communicator_);
  communicator_.barrier();
  batches_->take_seconds_waited();
  StepClock clock(communicator_.device());
  const Stopwatch watch;
  clock.mark();
  for (int64_t step = 0; step < count; ++step) {
    take_step();
    clock.mark();
  }
  wait_for_gpu(communicator_);
  return {clock.milliseconds(), watch.seconds(), batches_->take_seconds_waited()};
}

double TimedTraining::measure_exposed_communication() {
  std::vector<double> readings;
  for (int64_t reading = 0; reading < kExposureReadings; ++reading) {
    take_steps(kStepsBeforeReading);
    readings.push_back(reducer_.exposed_seconds());
  }
  return quantile(readings, 0.5);
}

double TimedTraining::checked_loss() {
  const double loss = step_.losses().take_merged(communicator_).loss;
  if (std::isfinite(loss)) return loss;
  throw NonFiniteError(fmt::format(
      "the loss is {} after {} steps; expected a finite number: lower lr or choose another mixed_precision",
      loss, steps_taken_));
}

}  // namespace adtrain
