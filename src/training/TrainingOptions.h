#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "adtrain/batch_size.h"
#include "config/Section.h"
#include "data/BatchSource.h"
#include "memory/AutoBatchSize.h"
#include "model/LossPositions.h"
#include "training/ProfileOptions.h"
#include "training/ReturnOptions.h"

namespace adtrain {

/// The arithmetic of forward and backward; master weights and optimizer moments are fp32 in all of them.
enum class Precision { kFloat32, kFloat16, kBFloat16 };

/// Whether GPUs replay an optimizer step that was captured once.
enum class CudaGraphUse { kAuto, kOn, kOff };

/// How the model is trained.
struct TrainingOptions {
  int64_t train_timesteps = 50000;
  int64_t train_batch_size = 512;
  std::optional<int64_t> global_batch_size;
  int64_t test_batch_size = 2048;
  int64_t gradient_accumulation_steps = 1;
  LossPositions loss_positions = LossPositions::kLast;

  int64_t batch_size_limit = 2048;
  double batch_size_safety_margin = 0.9;
  BatchSizePreference batch_size_prefer = BatchSizePreference::kMemory;
  bool batch_size_cache = true;
  std::optional<double> cpu_memory_limit_gb;

  double lr = 3e-4;
  int64_t num_warmup_steps = 0;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double adam_epsilon = 1e-8;
  double weight_decay = 0.01;
  double max_grad_norm = 1.0;

  Precision mixed_precision = Precision::kFloat32;
  bool tf32 = true;
  CudaGraphUse cuda_graph = CudaGraphUse::kAuto;
  int64_t seed = 42;
  bool deterministic = false;

  std::optional<std::string> init_from;
  std::optional<std::string> freeze;  ///< patterns with commas between them: see FrozenParameters.h

  int64_t summary_interval = 100;
  int64_t eval_interval = 1000;
  int64_t ckpt_interval = 1000;
  int64_t keep_checkpoints = 3;
  bool keep_best = false;

  ReturnOptions returns;
  ProfileOptions profile;

  void declare(Section& section);
  void check(Findings& findings) const;

  /// The samples of one rank in each global batch, over all of its micro-batches; none where no global batch
  /// is given. Throws ConfigError where the global batch does not divide over ranks.
  std::optional<int64_t> share_of_global_batch(int64_t world_size) const;
  /// cpu_memory_limit_gb in bytes.
  std::optional<int64_t> cpu_memory_limit() const;
  /// Rows of one rank's micro-batch: train_batch_size, or its share of global_batch_size.
  /// Throws ConfigError where the global batch does not divide over ranks and accumulation steps.
  int64_t micro_batch(int64_t world_size) const;
  /// This rank's share of each global batch. Throws as micro_batch does.
  BatchShare share(int64_t rank, int64_t world_size) const;
  /// The type in which the model computes on this device: mixed precision needs a GPU.
  at::ScalarType compute_type(at::Device device) const;
};

}  // namespace adtrain
