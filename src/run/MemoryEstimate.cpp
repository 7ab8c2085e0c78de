#include "run/MemoryEstimate.h"

#include <algorithm>

#include "base/Error.h"
#include "data/Transition.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "model/ActivationEstimate.h"
#include "model/AlgorithmDistillation.h"
#include "model/NetworkPlan.h"
#include "parallel/BucketLayout.h"

namespace adtrain {
namespace {

// Measured on H200s with CUDA 13 (docs/benchmarks.md, "Memory by parts").
constexpr int64_t kContextBytes = 800'000'000;        ///< CUDA's context and the kernels' code
constexpr int64_t kCommunicationBytes = 900'000'000;  ///< NCCL's buffers on one host

/// Gradients that are all-reduced in 16 bits have a copy in that type.
int64_t gradient_bytes(int64_t elements, const RunConfig& config, int64_t world_size) {
  const bool copied = world_size > 1 && config.distributed.gradient_wire_type == WireType::kBFloat16;
  return elements * (copied ? 6 : 4);
}

/// Of the last rank, whose shard is the largest.
int64_t moment_bytes(const FlatLayout& layout, const RunConfig& config, int64_t world_size) {
  const BucketLayout buckets(layout, config.distributed.reducer());
  const bool sharded = config.distributed.shard_optimizer;
  return 2 * 4 * (sharded ? buckets.shard_size(world_size - 1, world_size) : layout.total());
}

int64_t history_bytes(const RunConfig& config) {
  if (config.data.histories_on_gpu == HistoriesOnGpu::kOff) return 0;
  if (config.environment.has_own_tasks()) return 0;  // an estimate opens no files
  const TaskSplit split =
      TaskSplit::of(config.environment, TaskFamily::of(config.environment).task_count(), config.tasks);
  return static_cast<int64_t>(split.train.size() * sizeof(Transition)) * config.data.train_n_stream *
         config.data.train_source_timesteps;
}

}  // namespace

MemoryEstimate::MemoryEstimate(const RunConfig& config, const kernels::DeviceTraits& gpu, int64_t world_size)
    : config_(config),
      world_size_(world_size),
      type_(config.training.compute_type(at::kCUDA)),
      plan_(plan_of(config.model, config.model_shape(), config.training.loss_positions, gpu, type_)) {
  const auto model = AlgorithmDistillation::without_values(config.model, config.model_shape());
  ParameterBuffer& parameters = model->parameters();
  freeze(parameters, config.training.freeze.value_or(""), config.place_of("freeze"));
  remaining_ = remaining_backward(config.model, parameters);
  parameter_count_ = parameters.count();
  trained_count_ = parameters.trained_count();
  parameters.to(parameters.flat().device(), type_);
  const FlatLayout trained = FlatLayout::of(parameters.trained_leaves());
  fixed_.parameters = parameters.bytes();
  fixed_.gradients = gradient_bytes(trained.total(), config, world_size);
  fixed_.moments = moment_bytes(trained, config, world_size);
  fixed_.histories = history_bytes(config);
  fixed_.communication = world_size > 1 ? kCommunicationBytes : 0;
  fixed_.other = kContextBytes;
}

MemorySplit MemoryEstimate::split(int64_t micro_batch) const {
  MemorySplit split = fixed_;
  split.activations =
      activation_bytes(config_.model, config_.model_shape(), plan_, config_.training.loss_positions, type_,
                       micro_batch, remaining_.forward_only) +
      held_out_bytes(micro_batch);
  // Our kernels sum the gradients of whole blocks, those of frozen parameters too.
  if (plan_.whole_blocks() || plan_.by_sublayers()) split.activations += remaining_.largest_partly_bytes;
  return split;
}

int64_t MemoryEstimate::held_out_bytes(int64_t micro_batch) const {
  const int64_t rows = config_.training.test_batch_size;
  if (config_.training.eval_interval == 0 || rows <= micro_batch) return 0;
  return inference_bytes(config_.model, config_.model_shape(), plan_, type_, rows);
}

int64_t MemoryEstimate::largest_batch(int64_t bytes) const {
  const auto fits = [&](int64_t batch) { return split(batch).total() <= bytes; };
  if (!fits(1)) return 0;
  int64_t fitting = 1, failing = 2;
  constexpr int64_t kMost = int64_t{1} << 24;
  while (failing < kMost && fits(failing)) fitting = std::exchange(failing, 2 * failing);
  while (failing - fitting > 1) {
    const int64_t middle = (fitting + failing) / 2;
    (fits(middle) ? fitting : failing) = middle;
  }
  return fitting;
}

std::optional<int64_t> MemoryEstimate::configured_batch() const {
  if (config_.training.train_batch_size == kAutoBatchSize) return 1;
  try {
    return config_.training.micro_batch(world_size_);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace adtrain
