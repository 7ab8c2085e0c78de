#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace adtrain {

/// What the configuration says of a network, by the names of its keys, and of the environment.
struct NetworkSettings {
  int64_t grid_size;    ///< each coordinate of a state is 0 … grid_size − 1
  int64_t num_actions;  ///< each action is 0 … num_actions − 1
  int64_t n_transit;    ///< states of a window, at most
  int64_t tf_n_embd;
  int64_t tf_n_layer;
  int64_t tf_n_head;
  std::optional<int64_t> tf_n_inner;
  double tf_dropout;
  double tf_attn_dropout;
};

/// B windows of learning histories: T states, and what the learner did after each but the last. 1 ≤ T ≤
/// n_transit; with T = 1 the other tensors have no elements.
struct NetworkBatch {
  at::Tensor states;       ///< int32 (B, T, 2)
  at::Tensor actions;      ///< int32 (B, T − 1)
  at::Tensor rewards;      ///< float32 (B, T − 1)
  at::Tensor next_states;  ///< int32 (B, T − 1, 2)
  /// Whether the action after each state is asked for, else that after the last one.
  bool every_state;
};

/// A network that predicts the learner's next action, as a libtorch module: register_parameter and
/// register_module give parameters their names in checkpoints, register them in the order of first use.
///
/// Parameters are float32 on the CPU when it is made, of values drawn from libtorch's default generator,
/// which is seeded before. The program moves them to its device and, in mixed precision, to a 16-bit type;
/// buffers move to the device and are to be constants, as they are not saved. Dropout follows is_training(),
/// and draws from the device's default generator, which is seeded from (seed, rank, step) before each step.
class Network : public torch::nn::Module {
 public:
  /// Logits of the action after each state (B, T, num_actions), or after the last one (B, 1, num_actions),
  /// of a floating-point type. What stands for state i reads transitions 0 … i − 1 and state i alone. On a
  /// GPU nothing here may wait for the device, as steps are captured in CUDA graphs, or the configuration
  /// says `cuda_graph: off`.
  virtual at::Tensor forward(const NetworkBatch& batch) = 0;
};

}  // namespace adtrain
