#include "training/Trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Fault.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

constexpr const char* kNoScaleHelps = "fp16 overflows in every step, however small the loss scale";

/// Adds the seconds of its life to a sum.
class TimeAdded {
 public:
  explicit TimeAdded(double& sum) : sum_(sum) {}
  ~TimeAdded() { sum_ += watch_.seconds(); }
  TimeAdded(const TimeAdded&) = delete;
  TimeAdded& operator=(const TimeAdded&) = delete;

 private:
  Stopwatch watch_;
  double& sum_;
};

}  // namespace

Trainer::Trainer(const TrainingOptions& options, const ReducerOptions& reducer, const DataOptions& data,
                 Parts parts)
    : options_(options),
      parts_(std::move(parts)),
      share_(options.share(parts_.communicator.rank(), parts_.communicator.world_size())),
      data_(data),
      reducer_(parts_.model.parameters().trained_leaves(), parts_.communicator, reducer),
      optimizer_(parts_.model.parameters().trained_of(parts_.model.parameters().flat()), options,
                 reducer_.shards()),
      loss_scale_(
          LossScale::for_type(parts_.model.parameters().compute_type(), parts_.communicator.device())),
      state_(parts_.model, optimizer_, loss_scale_.get()),
      step_({.model = parts_.model,
             .communicator = parts_.communicator,
             .reducer = reducer_,
             .optimizer = optimizer_,
             .loss_scale = loss_scale_.get()},
            share_, options),
      schedule_(options.lr, options.num_warmup_steps, options.train_timesteps),
      profiler_(options.profile, parts_.communicator, parts_.log, parts_.profiles),
      memory_(parts_.communicator.device(), options.cpu_memory_limit(), /*local_ranks=*/1),
      slow_ranks_(parts_.communicator) {}

void Trainer::start_from(const Snapshot* snapshot) {
  if (snapshot != nullptr) {
    for (const std::string& sentence : state_.restore(*snapshot)) parts_.log.notice(sentence);
  }
  state_.broadcast(parts_.communicator);
  batches_ = BatchSource::create(
      {.windows = parts_.training_windows,
       .order = SampleOrder(parts_.training_windows.samples(), static_cast<uint64_t>(options_.seed)),
       .share = share_,
       .first_sample = state_.progress.samples_drawn},
      data_, parts_.communicator.device());
}

Trainer::End Trainer::run(const StopRequest& stop, int64_t stop_after) {
  const int64_t last_step = std::min(options_.train_timesteps, stop_after);
  Activity& activity = Activity::of_this_process();
  bool leaving = state_.progress.step >= last_step;

  parts_.communicator.synchronize();
  memory_.restart();
  start_memory_ = memory_.now().in_use;
  parts_.log.begin(state_.progress.step, state_.progress.samples_drawn, options_.train_timesteps);
  slow_ranks_.begin();
  reported_step_ = state_.progress.step;
  bool stopped = held_out_missed() && !measure_held_out(stop);
  if (!stopped && returns_missed()) stopped = !measure_returns(stop);
  leaving = leaving || stopped;
  while (!leaving) {
    activity.begin("training");
    activity.at_step(state_.progress.step);
    Fault::of_this_process().at_step(parts_.communicator.rank(), state_.progress.step + 1);
    profiler_.begin_step(state_.progress.step + 1);
    take_step();
    // `stop_after` is a request, too, but where the run is done anyway.
    const bool is_last = state_.progress.step == last_step;
    stopped = agree_to_stop(stop) || (is_last && last_step < options_.train_timesteps);
    leaving = stopped || is_last;
    profiler_.end_step(state_.progress.step, leaving);
    at_boundary(leaving);
    // After the save, as they may take long: a run that is asked to stop does not begin them. What was due,
    // or is cut short, is made up for when the run goes on from this step, so no further one is taken.
    if (!stopped && held_out_due(leaving)) stopped = !measure_held_out(stop);
    if (!stopped && returns_due()) stopped = !measure_returns(stop);
    const bool cut_short = stopped && !leaving;
    leaving = leaving || stopped;
    if (cut_short && !as_root_says(parts_.keeper.safe_step() == state_.progress.step)) save(leaving);
    profiler_.write(leaving);
  }
  const bool finished = state_.progress.step >= options_.train_timesteps;
  parts_.log.end(finished);
  return finished ? End::kFinished : End::kStopped;
}

void Trainer::take_step() {
  const bool could_capture = step_.why_not_captured().empty();
  step_.run(*batches_, state_.progress.step, schedule_.rate_at(state_.progress.step));
  if (could_capture && !step_.why_not_captured().empty()) {
    parts_.log.notice(
        fmt::format("{}: steps run eagerly, which is slower and computes the same; a smaller "
                    "train_batch_size leaves memory to capture them",
                    step_.why_not_captured()));
  }
  ++state_.progress.step;
  state_.progress.samples_drawn += share_.global_batch();
}

bool Trainer::agree_to_stop(const StopRequest& stop) {
  const TimeAdded agreeing(times_.agreeing);
  return stop.agreed(parts_.communicator);
}

void Trainer::at_boundary(bool leaving) {
  if (due(options_.summary_interval, leaving)) report();
  if (due(options_.ckpt_interval, leaving) || returns_due()) {
    save(leaving);
  } else if (keeper_wants_step()) {
    give_step_to_keeper(/*leaving=*/false);
  }
}

bool Trainer::keeper_wants_step() {
  const bool wants = parts_.communicator.is_root() && parts_.keeper.wants_step();
  if (!optimizer_.sharded()) return wants && state_.finite();
  return as_root_says(wants) && finite_on_all_ranks();
}

bool Trainer::as_root_says(bool statement) {
  at::Tensor told = at::full({1}, statement ? 1 : 0, at::kLong);
  parts_.communicator.broadcast(told, 0);
  return told.item<int64_t>() != 0;
}

bool Trainer::finite_on_all_ranks() {
  at::Tensor spoilt = at::full({1}, state_.finite() ? 0 : 1, at::kLong);
  parts_.communicator.all_reduce(spoilt, ReduceOp::kMax);
  return spoilt.item<int64_t>() == 0;
}

void Trainer::give_step_to_keeper(bool leaving) {
  const bool is_root = parts_.communicator.is_root();
  if (!is_root && !optimizer_.sharded()) return;
  const TimeAdded writing(times_.writing);
  const Snapshot snapshot = state_.snapshot(parts_.origin);
  if (is_root) parts_.keeper.save(snapshot, leaving);
}

bool Trainer::due(int64_t interval, bool leaving) const {
  return interval > 0 && (leaving || state_.progress.step % interval == 0);
}

bool Trainer::held_out_due(bool leaving) const {
  return parts_.held_out_windows != nullptr && due(options_.eval_interval, leaving);
}

bool Trainer::returns_due() const {
  return parts_.returns != nullptr && options_.returns.due(state_.progress.step, options_.train_timesteps);
}

bool Trainer::held_out_missed() {
  const int64_t step = state_.progress.step;
  if (step == 0 || !held_out_due(/*leaving=*/step == options_.train_timesteps)) return false;
  return !as_root_says(parts_.log.has_held_out(step));
}

bool Trainer::returns_missed() {
  if (state_.progress.step == 0 || !returns_due()) return false;
  return !as_root_says(parts_.log.has_returns(state_.progress.step));
}

bool Trainer::measure_held_out(const StopRequest& stop) {
  Activity::of_this_process().begin("measuring the held-out loss");
  HeldOutLoss held_out(*parts_.held_out_windows, parts_.model, parts_.communicator, options_.test_batch_size);
  std::optional<LossFigures> figures;
  step_.lend_memory_to([&] {
    figures = held_out.measure([&](double share) {
      parts_.log.measuring_held_out(state_.progress.step, share);
      return share == 1 || !stop.agreed(parts_.communicator);
    });
  });
  if (!figures) {
    warn_of_cut_short("the held-out loss was");
    return false;
  }
  parts_.log.held_out(state_.progress.step, *figures);
  return true;
}

bool Trainer::measure_returns(const StopRequest& stop) {
  Activity::of_this_process().begin("measuring in-context returns");
  std::optional<ReturnFigures> figures;
  optimizer_.gather_parameters();  // they are copied from in fp32
  step_.lend_memory_to([&] { figures = parts_.returns->measure(); });
  if (!figures) {
    const bool stopped = agree_to_stop(stop);
    if (stopped) warn_of_cut_short("in-context returns were");
    return !stopped;
  }
  parts_.log.returns(state_.progress.step, *figures);
  if (parts_.communicator.is_root()) parts_.keeper.measured(state_.progress.step, *figures);
  return true;
}

void Trainer::warn_of_cut_short(const char* what) {
  parts_.log.warn(fmt::format("after step {} {} not measured to the end; --resume makes up for that",
                              state_.progress.step, what));
}

void Trainer::report() {
  TrainingFigures figures;
  figures.step = state_.progress.step;
  figures.loss = step_.losses().take_merged(parts_.communicator);
  figures.learning_rate = schedule_.rate_at(figures.step - 1);
  figures.gradient_norm = optimizer_.gradient_norm().item<double>();
  figures.sequences = state_.progress.samples_drawn;
  figures.data_wait_seconds = batches_->take_seconds_waited();
  figures.exposed_communication_seconds = reducer_.take_mean_exposed_seconds();
  figures.memory = gather_memory(parts_.communicator, memory());
  figures.micro_batch = share_.micro_batch;
  if (loss_scale_) figures.skipped_steps = loss_scale_->skipped_steps();
  // With loss scaling an overflow is expected, in the forward pass too: the step is skipped, as long as a
  // smaller scale may help.
  if (loss_scale_ && loss_scale_->exhausted()) fail_non_finite(kNoScaleHelps);
  if (!loss_scale_ && figures.loss.non_finite_batches > 0) {
    fail_non_finite(fmt::format("the loss of {} micro-batches since the last report is not finite",
                                figures.loss.non_finite_batches));
  }
  if (!loss_scale_ && !std::isfinite(figures.gradient_norm)) {
    fail_non_finite(fmt::format("the gradient norm is {}", figures.gradient_norm));
  }
  watch_for_slow_ranks(figures);
  figures.slow_ranks = slow_ranks_.slow_ranks();
  const TimeAdded writing(times_.writing);
  parts_.log.trained(figures);
}

void Trainer::watch_for_slow_ranks(const TrainingFigures& figures) {
  times_.data = figures.data_wait_seconds;
  times_.waited = figures.exposed_communication_seconds * static_cast<double>(figures.step - reported_step_);
  // A GPU computes while its process waits for the others'.
  if (parts_.communicator.device().is_cpu()) times_.waited += times_.agreeing;
  const SlowRankMonitor::News news = slow_ranks_.report(std::exchange(times_, {}));
  reported_step_ = figures.step;
  for (const std::string& sentence : news.warnings) {
    parts_.log.warn(fmt::format("step {}: {}", figures.step, sentence));
  }
  for (const std::string& sentence : news.notices) {
    parts_.log.notice(fmt::format("step {}: {}", figures.step, sentence));
  }
}

RankMemory Trainer::memory() const {
  MemorySplit known;
  known.parameters = parts_.model.parameters().bytes();
  known.gradients = reducer_.bytes();
  known.moments = optimizer_.bytes();
  known.histories = batches_->history_bytes();
  known.graph = step_.graph_bytes();
  known.communication = parts_.communication_bytes;
  const MemorySplit split = memory_.split(known);
  return {.start = start_memory_, .peak = memory_.peak(), .current = split.total(), .split = split};
}

/// Every rank checks its state, and all ranks learn the combined result: no non-finite value reaches the
/// disk.
void Trainer::save(bool leaving) {
  Activity::of_this_process().begin("saving a checkpoint");
  if (loss_scale_ && loss_scale_->exhausted()) fail_non_finite(kNoScaleHelps);
  if (!finite_on_all_ranks()) fail_non_finite("parameters or the optimizer's moments are not finite");
  give_step_to_keeper(leaving);
}

/// Collective: rank 0 knows which step is safe, and every rank's error names it.
void Trainer::fail_non_finite(const std::string& found) {
  constexpr int64_t kNone = -1;
  at::Tensor safe = at::full({1}, kNone, at::kLong);
  if (parts_.communicator.is_root()) safe.fill_(parts_.keeper.safe_step().value_or(kNone));
  parts_.communicator.broadcast(safe, 0);
  const auto step = safe.item<int64_t>();
  const std::string changes =
      fmt::format("a lower lr ({}), a longer num_warmup_steps ({}){}", options_.lr, options_.num_warmup_steps,
                  options_.max_grad_norm > 0 ? "" : " and max_grad_norm above 0");
  throw NonFiniteError(fmt::format(
      "{} at step {}; expected finite numbers, and nothing else is saved. {}; or look for bad values in the "
      "histories",
      found, state_.progress.step,
      step == kNone
          ? fmt::format("No step is saved yet: start again, with --overwrite and {}", changes)
          : fmt::format("Step {} is saved and finite: go on from there with --resume and {}, or start again "
                        "with --overwrite where that is not enough",
                        step, changes)));
}

}  // namespace adtrain
