#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/Random.h"
#include "collection/MlpWeights.h"
#include "environments/TaskFamily.h"

namespace adtrain {

/// A small network, cell (x, y) → 64 tanh → 64 tanh → kOutputs, with its gradients, for a few cells at a
/// time. Written for speed on one core: fixed sizes, and each array is allocated only once. For one thread at
/// a time.
template <int kOutputs>
class Mlp {
 public:
  MlpWeights<kOutputs> weights;
  MlpWeights<kOutputs> gradient;

  /// As Stable-Baselines3: orthogonal matrices, of gain √2 in the hidden layers, and no biases.
  void initialise(RandomStream& random, double output_gain);

  /// Evaluates the cells; the result is for `outputs` and `backward`.
  void forward(std::span<const Cell> cells);
  /// The kOutputs numbers of the i-th cell.
  std::span<const float, kOutputs> outputs(size_t i) const {
    return std::span<const float, kOutputs>(&outputs_[i * kOutputs], kOutputs);
  }
  /// Sets `gradient` from the loss's derivatives with respect to the outputs, (cells, kOutputs), at the cells
  /// of the last `forward`.
  void backward(std::span<const Cell> cells, std::span<const float> output_gradients);

 private:
  void backward_output(std::span<const float> output_gradients, size_t count);
  void backward_hidden(size_t count);
  void backward_input(std::span<const Cell> cells);

  // (cells, 64): the units' values, and the loss's derivatives with respect to their inputs.
  std::vector<float> first_, second_, first_delta_, second_delta_;
  std::vector<float> outputs_;
  alignas(32) float hidden_transposed_[kUnits][kUnits];
};

extern template class Mlp<1>;
extern template class Mlp<kActions>;

}  // namespace adtrain
