#pragma once

#include <cstdint>

#include "collection/MlpWeights.h"
#include "environments/GpuTask.h"

/// The state of a task's thread block in GPU memory between kernels.
namespace adtrain::gpu {

constexpr int kActions = 5;
constexpr int kPolicyParameters = sizeof(MlpWeights<kActions>) / sizeof(float);
constexpr int kValueParameters = sizeof(MlpWeights<1>) / sizeof(float);
constexpr int kParameters = kPolicyParameters + kValueParameters;

/// Both networks and their optimizer: the policy's parameters, then the value's, each as in MlpWeights.
struct NetworkState {
  float weights[kParameters];
  float means[kParameters];         ///< Adam's, of the gradient
  float square_means[kParameters];  ///< Adam's, of its square
  double mean_power, square_power;  ///< β1 and β2 to the number of steps
};

/// One step of one stream in a rollout. While the rollout is made, `advantage` is the step's reward and
/// `target` the state's value.
struct alignas(16) Sample {
  int32_t code;       ///< state · 8 + action, a state being x · grid_size + y
  float probability;  ///< of the action, by the policy that took it
  float advantage;
  float target;  ///< for the value
};

/// The networks' outputs for a state.
struct alignas(16) Opinion {
  float probabilities[kActions];
  float value;
  float unused[2];
};

constexpr int kBytesOfTransition = 6;

/// Arrays in GPU memory, each with one part per task.
struct TaskMemory {
  const GpuTask* tasks;
  NetworkState* networks;
  Sample* samples;    ///< (steps, streams) of the current rollout
  Opinion* opinions;  ///< (states)
  GpuAgent* agents;   ///< (streams)
  /// (1): how many rollouts began with networks that had not diverged. Those after the first that did not are
  /// unsound, too: what is NaN stays NaN.
  int32_t* sound_rollouts;
  /// bytes: states (steps, kept, 2), next states likewise, actions (steps, kept), rewards likewise
  uint8_t* histories;
};

}  // namespace adtrain::gpu
