#include "training/TrainStep.h"

#include <limits>
#include <mutex>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Random.h"
#include "kernels/DropoutDraw.h"
#include "watchdog/ForeignError.h"

namespace adtrain {
namespace {

/// What random numbers of a step are for.
enum Purpose : uint64_t { kOfRank = 0xd509, kOfRows = 0xd50a };

/// Libraries choose their algorithms and buffers during these steps.
constexpr int64_t kStepsBeforeCapture = 3;

void seed_generator(const at::Device& device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

/// The numbers of this rank's rows in the global batch, by micro-step.
at::Tensor row_numbers(const BatchShare& share, const at::Device& device) {
  const auto numbers = at::TensorOptions().dtype(at::kLong);
  at::Tensor rows = at::empty({share.accumulation, share.micro_batch}, numbers);
  for (int64_t micro_step = 0; micro_step < share.accumulation; ++micro_step) {
    const int64_t first = share.first_row(micro_step);
    rows[micro_step].copy_(at::arange(first, first + share.micro_batch, numbers));
  }
  return rows.to(device);
}

/// Not where rows are of several groups of spaces: how many of each differs from step to step. Nor where the
/// backward pass sets the generator back, which libtorch refuses while it captures.
bool captures_steps(const at::Device& device, const AlgorithmDistillation& model,
                    const TrainingOptions& options) {
  if (!device.is_cuda() || options.cuda_graph == CudaGraphUse::kOff || model.shape().spaces.size() > 1)
    return false;
  if (model.recomputation(options.loss_positions).rewinds_generator()) return false;
  return options.cuda_graph == CudaGraphUse::kOn || !options.deterministic;
}

}  // namespace

TrainStep::TrainStep(Parts parts, BatchShare share, const TrainingOptions& options)
    : parts_(parts),
      device_(parts.model.parameters().flat().device()),
      share_(share),
      loss_positions_(options.loss_positions),
      seed_(static_cast<uint64_t>(options.seed)),
      dropout_seed_(at::zeros({1}, at::TensorOptions(device_).dtype(at::kLong))),
      rows_(row_numbers(share, device_)),
      losses_(device_),
      cuda_graph_(options.cuda_graph),
      captures_(captures_steps(device_, parts.model, options)),
      graph_(device_) {
  parts_.model.send_gradients_to(&parts_.reducer);
  parts_.reducer.zero();  // later steps find it zeroed by the optimizer
  const Fault& fault = Fault::of_this_process();
  if (fault.is_planned(FaultKind::kNanLoss) || fault.is_planned(FaultKind::kNanGradient)) {
    fault_factor_ = at::ones({}, at::TensorOptions(device_).dtype(at::kFloat));
  }
}

TrainStep::~TrainStep() {
  parts_.model.send_gradients_to(nullptr);
}

void TrainStep::run(BatchSource& batches, int64_t step, double learning_rate) {
  prepare_fault();
  seed_generator(device_, seed_of(seed_, kOfRank, share_.rank, step));
  dropout_seed_.fill_(static_cast<int64_t>(seed_of(seed_, kOfRows, step)));
  parts_.optimizer.set_learning_rate(learning_rate);
  if (captures_ && steps_taken_ >= kStepsBeforeCapture) {
    take_captured(batches);
  } else {
    take([&](int64_t) { return batches.next(); });
  }
  ++steps_taken_;
}

void TrainStep::take(const NextBatch& next_batch) {
  for (int64_t micro_step = 0; micro_step < share_.accumulation; ++micro_step) {
    const Batch batch = next_batch(micro_step);
    parts_.reducer.begin_micro_step(/*communicates=*/micro_step + 1 == share_.accumulation);
    backward_of(batch, micro_step);
  }
  run_out_of_memory(StepMoment::kGradients, device_);
  if (capturing_) run_out_of_memory(StepMoment::kCapture, device_);
  parts_.reducer.finish();
  run_out_of_memory(StepMoment::kOptimizer, device_);
  const ParameterBuffer& parameters = parts_.model.parameters();
  parts_.optimizer.step(parts_.reducer.flat_gradient(), parts_.loss_scale,
                        parameters.trained_of(parameters.low_precision()));
  if (parts_.loss_scale != nullptr) parts_.loss_scale->update();
}

at::Tensor TrainStep::rows_of(const Batch& batch, int64_t micro_step) const {
  const at::Tensor rows = rows_[micro_step];
  return batch.places.defined() ? rows.index_select(0, batch.places) : rows;
}

void TrainStep::backward_of(const Batch& batch, int64_t micro_step) {
  run_out_of_memory(StepMoment::kForward, device_);
  kernels::DropoutStream dropout = {dropout_seed_, rows_of(batch, micro_step)};
  AlgorithmDistillation::Loss loss;
  {
    const kernels::DropoutScope scope(dropout);
    loss = parts_.model.loss(batch, loss_positions_, /*training=*/true);
  }
  loss.sum = with_fault(FaultKind::kNanLoss, loss.sum);
  // The objective is a mean. To divide the sum would take kernels of its own, forward and backward.
  const at::Tensor weight = batch.step_targets.defined()
                                ? weight_of_target(batch.step_targets[0])
                                : weight_of_target(loss.targets * share_.accumulation * share_.world_size);
  if (Fault::of_this_process().lacks_memory_at(StepMoment::kBackward)) {
    loss.sum.register_hook([this](const at::Tensor&) { run_out_of_memory(StepMoment::kBackward, device_); });
  }
  if (has_gradients(loss.sum)) loss.sum.backward(with_fault(FaultKind::kNanGradient, weight));
  losses_.add(loss);
}

bool TrainStep::has_gradients(const at::Tensor& loss) const {
  if (loss.requires_grad()) return true;
  // Of a batch without rows of the groups of spaces whose encoders and heads alone train.
  if (parts_.model.shape().spaces.size() > 1) return false;
  throw ConfigError(
      fmt::format("freeze: this network's loss depends on none of the {} parameters that are left to train; "
                  "expected some that it uses, such as pred_action",
                  parts_.model.parameters().trained_count()));
}

void TrainStep::prepare_fault() {
  const Fault& fault = Fault::of_this_process();
  run_out_of_memory(StepMoment::kBeginning, device_);
  if (!fault_factor_.defined()) return;
  const bool strikes = fault.holds(FaultKind::kNanLoss) || fault.holds(FaultKind::kNanGradient);
  fault_factor_.fill_(strikes ? std::numeric_limits<double>::quiet_NaN() : 1.0);
}

void TrainStep::run_out_of_memory(StepMoment moment, const at::Device& device) {
  if (!Fault::of_this_process().lacks_memory_at(moment)) return;
  constexpr int64_t kPebibyte = int64_t{1} << 50;
  at::empty({kPebibyte}, at::TensorOptions(device).dtype(at::kByte));
}

at::Tensor TrainStep::with_fault(FaultKind kind, const at::Tensor& value) const {
  return Fault::of_this_process().is_planned(kind) ? value * fault_factor_ : value;
}

at::Tensor TrainStep::weight_of_target(int64_t global_targets) {
  const auto divisor = static_cast<double>(global_targets);
  if (parts_.loss_scale != nullptr) return parts_.loss_scale->factor() / divisor;
  if (weighed_targets_ != global_targets) {
    weighed_targets_ = global_targets;
    target_weight_ = at::full({}, 1 / divisor, at::TensorOptions(device_).dtype(at::kFloat));
  }
  return target_weight_;
}

at::Tensor TrainStep::weight_of_target(const at::Tensor& global_targets) const {
  const at::Tensor each = global_targets.to(at::kFloat).reciprocal();
  return parts_.loss_scale != nullptr ? parts_.loss_scale->factor() * each : each;
}

void TrainStep::take_captured(BatchSource& batches) {
  const bool feeds = !batches.on_device();
  if (feeds) feed_graph(batches);
  const NextBatch next_batch = [&](int64_t micro_step) {
    return feeds ? inputs_[static_cast<size_t>(micro_step)] : batches.next();
  };
  if (graph_.captured() || capture(batches, next_batch)) {
    graph_.replay();
  } else {
    take(next_batch);
    inputs_.clear();
  }
}

bool TrainStep::capture(BatchSource& batches, const NextBatch& next_batch) {
  int64_t lacking = 0;
  parts_.communicator.synchronize();  // with a deadline, unlike the capture's own wait
  try {
    capturing_ = true;
    graph_.capture([&] { take(next_batch); });
  } catch (const std::exception& error) {
    capturing_ = false;
    if (cuda_graph_ == CudaGraphUse::kOn || !is_out_of_memory(error)) throw;
    lacking = 1;
    parts_.reducer.abandon();
    batches.restart_step();
  }
  capturing_ = false;
  // The collective operations of a graph would wait for ranks that have none.
  at::Tensor ranks = at::full({1}, lacking, at::kLong);
  parts_.communicator.all_reduce(ranks, ReduceOp::kSum);
  if (ranks.item<int64_t>() == 0) return true;
  graph_.discard();
  captures_ = false;
  why_not_captured_ = fmt::format("the memory of {} of {} GPUs does not suffice to capture a step",
                                  ranks.item<int64_t>(), parts_.communicator.world_size());
  return false;
}

void TrainStep::feed_graph(BatchSource& batches) {
  if (inputs_.empty()) {
    for (int64_t k = 0; k < share_.accumulation; ++k) inputs_.push_back(batches.next());
    return;
  }
  for (Batch& input : inputs_) input.copy_from(batches.next());
}

}  // namespace adtrain
