#include "training/TrainingTrial.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "data/BatchSource.h"
#include "parallel/GradientReducer.h"
#include "training/HeldOutLoss.h"
#include "training/TrainStep.h"
#include "training/TrainingState.h"

namespace adtrain {
namespace {

/// Eager ones, in which libraries set themselves up, the one that is captured, and the one that is timed.
constexpr int64_t kStepsOnGpu = 5;
/// The first creates what later steps use again.
constexpr int64_t kStepsOnCpu = 2;
/// More micro-batches than two take no more memory, but for those that come from the host and that a captured
/// step keeps.
constexpr int64_t kMostAccumulation = 2;

}  // namespace

TrainingTrial::TrainingTrial(const TrainingOptions& options, const ReducerOptions& reducer,
                             const DataOptions& data, Parts parts)
    : options_(options),
      reducer_(reducer),
      data_(data),
      parts_(parts),
      // Where nothing is sharded, a rank of several holds what a single one does.
      alone_(parts.model.parameters().flat().device(), reducer.shards ? parts.rank : 0,
             reducer.shards ? parts.world_size : 1),
      values_before_(parts.model.parameters().flat().detach().cpu().clone()) {}

TrainingTrial::~TrainingTrial() {
  const at::NoGradGuard no_grad;
  try {
    at::Tensor(parts_.model.parameters().flat()).copy_(values_before_);
    parts_.model.parameters().refresh();
  } catch (const c10::Error&) {  // the device is lost, and an error of it is on its way already
  }
}

TrainingTrial::Seconds TrainingTrial::take_steps(int64_t micro_batch, int64_t accumulation,
                                                 int64_t held_out_batch,
                                                 const std::function<void()>& at_the_end) {
  // Gradients are views of the reducer's buffer, and would keep its memory.
  struct NoGradients {
    AlgorithmDistillation& model;
    ~NoGradients() {
      for (at::Tensor leaf : model.parameters().leaves()) leaf.mutable_grad() = at::Tensor();
    }
  } const no_gradients{parts_.model};

  const at::Device device = alone_.device();
  const BatchShare share = {.micro_batch = micro_batch,
                            .accumulation = std::min(accumulation, kMostAccumulation)};
  const ParameterBuffer& parameters = parts_.model.parameters();
  GradientReducer reducer(parameters.trained_leaves(), alone_, reducer_);
  Optimizer optimizer(parameters.trained_of(parameters.flat()), options_, reducer.shards());
  const auto loss_scale = LossScale::for_type(parts_.model.parameters().compute_type(), device);
  const TrainingState state(parts_.model, optimizer, loss_scale.get());
  const auto batches = BatchSource::create(
      {.windows = parts_.training_windows,
       .order = SampleOrder(parts_.training_windows.samples(), static_cast<uint64_t>(options_.seed)),
       .share = share},
      data_, device);
  TrainStep step({.model = parts_.model,
                  .communicator = alone_,
                  .reducer = reducer,
                  .optimizer = optimizer,
                  .loss_scale = loss_scale.get()},
                 share, options_);
  Seconds seconds;
  for (int64_t k = 0; k < (device.is_cuda() ? kStepsOnGpu : kStepsOnCpu); ++k) {
    const Stopwatch watch;
    step.run(*batches, k, /*learning_rate=*/0);
    step.losses().take_merged(alone_);  // waits for the device
    seconds.micro_batch = watch.seconds() / static_cast<double>(share.accumulation);
  }
  if (!step.why_not_captured().empty()) throw Error(ExitCode::kOutOfMemory, step.why_not_captured());
  if (parts_.held_out_windows != nullptr) {
    step.lend_memory_to([&] {
      const Stopwatch watch;
      HeldOutLoss(*parts_.held_out_windows, parts_.model, alone_, held_out_batch).measure_first_batch();
      seconds.held_out_batch = watch.seconds();
    });
  }
  state.finite();
  at_the_end();
  return seconds;
}

}  // namespace adtrain
