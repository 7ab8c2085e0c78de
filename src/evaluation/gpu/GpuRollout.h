#pragma once

#include <memory>
#include <span>
#include <vector>

#include "environments/TaskFamily.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Trial.h"
#include "evaluation/gpu/PackedNetwork.h"

namespace adtrain {

/// Rollouts that live on a GPU: environments, contexts and the model. One kernel runs an episode of all
/// trials; the host hears of them at the end of each. Arithmetic is fp32's but for the last few bits
/// (SplitProduct.cuh).
class GpuRollout {
 public:
  /// Whether the current GPU has the shared memory that the kernel takes for this network.
  static bool fits(const PackedNetwork& network, const ModelOptions& model);

  /// Borrows `network`. On the current GPU and stream. `model` and `shape` are the network's.
  GpuRollout(const PackedNetwork& network, const TaskFamily& family, std::span<const Trial> trials,
             const ModelOptions& model, const EvaluationOptions& options);
  ~GpuRollout();

  /// Runs every trial's next episode; returns what each earned. Throws NonFiniteError where the model's
  /// logits are.
  std::vector<float> run_episode();
  /// (trials, actions) fp32 on the CPU: the logits of the last step.
  const at::Tensor& last_logits() const { return logits_; }

 private:
  struct Arrays;

  const PackedNetwork& network_;
  std::vector<Trial> trials_;
  std::unique_ptr<Arrays> arrays_;
  at::Tensor logits_;
};

}  // namespace adtrain
