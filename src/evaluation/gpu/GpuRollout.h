#pragma once

#include <memory>
#include <span>
#include <vector>

#include "environments/TaskFamily.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Trial.h"
#include "evaluation/gpu/PackedNetwork.h"

namespace adtrain {

/// Rollouts entirely on a GPU: environments, contexts and the model. One kernel runs an episode of all
/// trials; the host reads their results at the end of each episode. Factors of products keep about 16 of
/// fp32's 24 bits (SplitProduct.cuh), and the order of additions depends on the number of trials and on the
/// GPU. For one thread.
class GpuRollout {
 public:
  /// Whether the network's GPU can run the kernel and has the required shared memory. `model`: the network's.
  static bool fits(const PackedNetwork& network, const ModelOptions& model);

  /// Begins with empty contexts, on the network's GPU. Borrows `network`; `model` is the network's. Throws
  /// EnvironmentError where the network does not fit, or the GPU has too little memory for the trials.
  GpuRollout(const PackedNetwork& network, const TaskFamily& family, std::span<const Trial> trials,
             const ModelOptions& model, const EvaluationOptions& options);
  ~GpuRollout();

  /// Runs every trial's next episode on the current stream and waits for it; returns each episode's return.
  /// Throws NonFiniteError where the model's logits are not finite, EnvironmentError where the GPU fails.
  std::vector<float> run_episode();
  /// (trials, actions) fp32 on the CPU: the logits of the last step; undefined before the first episode.
  const at::Tensor& last_logits() const { return logits_; }

 private:
  struct Arrays;

  const PackedNetwork& network_;
  std::vector<Trial> trials_;
  std::unique_ptr<Arrays> arrays_;
  at::Tensor logits_;
};

}  // namespace adtrain
