#include "training/Trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "distributed/Activity.h"

namespace adtrain {

Trainer::Trainer(const TrainingOptions& options, const ReducerOptions& reducer, const DataOptions& data,
                 Parts parts)
    : options_(options),
      parts_(std::move(parts)),
      share_(options.share(parts_.communicator.rank(), parts_.communicator.world_size())),
      data_(data),
      reducer_(parts_.model.parameters().leaves(), parts_.communicator, reducer),
      optimizer_(parts_.model.parameters().flat(), options),
      loss_scale_(
          LossScale::for_type(parts_.model.parameters().compute_type(), parts_.communicator.device())),
      state_(parts_.model, optimizer_, loss_scale_.get()),
      step_({.model = parts_.model,
             .reducer = reducer_,
             .optimizer = optimizer_,
             .loss_scale = loss_scale_.get()},
            share_, options),
      schedule_(options.lr, options.num_warmup_steps, options.train_timesteps) {}

void Trainer::start_from(const Snapshot* snapshot) {
  if (snapshot != nullptr) state_.restore(*snapshot);
  state_.broadcast(parts_.communicator);
  saved_step_ = state_.progress.step;
  batches_ = BatchSource::create(
      {.windows = parts_.training_windows,
       .order = SampleOrder(parts_.training_windows.samples(), static_cast<uint64_t>(options_.seed)),
       .share = share_,
       .first_sample = state_.progress.samples_drawn},
      data_, parts_.communicator.device());
}

Trainer::End Trainer::run(int64_t stop_after) {
  const int64_t last_step = std::min(options_.train_timesteps, stop_after);
  Activity& activity = Activity::of_this_process();
  const StopRequest stop;
  bool stopped = false;

  parts_.log.begin(state_.progress.step, options_.train_timesteps);
  while (state_.progress.step < last_step && !stopped) {
    activity.begin("training");
    activity.at_step(state_.progress.step);
    step_.run(*batches_, state_.progress.step, schedule_.rate_at(state_.progress.step));
    ++state_.progress.step;
    state_.progress.samples_drawn += share_.global_batch();
    stopped = stop.agreed(parts_.communicator);
    at_boundary(stopped || state_.progress.step == last_step);
  }
  parts_.log.end();
  return state_.progress.step < options_.train_timesteps ? End::kStopped : End::kFinished;
}

void Trainer::at_boundary(bool leaving) {
  const int64_t step = state_.progress.step;
  const auto due = [&](int64_t interval) { return interval > 0 && (leaving || step % interval == 0); };
  if (due(options_.summary_interval)) report();
  if (due(options_.eval_interval) && parts_.held_out_windows != nullptr) {
    Activity::of_this_process().begin("measuring the held-out loss");
    HeldOutLoss held_out(*parts_.held_out_windows, parts_.model, parts_.communicator,
                         options_.test_batch_size);
    parts_.log.held_out(step, held_out.measure());
  }
  if (due(options_.ckpt_interval)) save();
}

void Trainer::report() {
  TrainingFigures figures;
  figures.step = state_.progress.step;
  figures.loss = step_.losses().take_merged(parts_.communicator);
  figures.learning_rate = schedule_.rate_at(figures.step - 1);
  figures.gradient_norm = optimizer_.gradient_norm().item<double>();
  figures.sequences = state_.progress.samples_drawn;
  figures.data_wait_seconds = batches_->take_seconds_waited();
  figures.exposed_communication_seconds = reducer_.exposed_seconds();
  if (loss_scale_) figures.skipped_steps = loss_scale_->skipped_steps();
  // With loss scaling a gradient that overflows is part of the plan: the step is skipped.
  if (!std::isfinite(figures.loss.loss) || (!loss_scale_ && !std::isfinite(figures.gradient_norm))) {
    throw NonFiniteError(
        fmt::format("the loss is {} and the gradient norm {} at step {}; expected finite numbers. The newest "
                    "checkpoint is of step {}: "
                    "lower lr ({}), lengthen num_warmup_steps ({}) or look for bad values in the histories, "
                    "then --resume",
                    figures.loss.loss, figures.gradient_norm, figures.step, saved_step_, options_.lr,
                    options_.num_warmup_steps));
  }
  parts_.log.trained(figures);
}

void Trainer::save() {
  if (saved_step_ == state_.progress.step) return;
  if (parts_.communicator.is_root()) {
    Activity::of_this_process().begin("saving a checkpoint");
    try {
      parts_.checkpoints.save(state_.snapshot(parts_.origin));
      parts_.log.saved(state_.progress.step);
    } catch (const CheckpointError& error) {
      // Hours of training must not end because a disk is full; the older checkpoints stand.
      parts_.log.warn(fmt::format("step {} was NOT saved and training continues: {}", state_.progress.step,
                                  error.what()));
      return;
    }
  }
  saved_step_ = state_.progress.step;
}

}  // namespace adtrain
