#pragma once

#include <cstdint>
#include <string>

#include "model/Layers.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// How the layers of a composed network begin: as the projects do whose block is the preset.
///
/// pre_norm: torch.nn.Linear and torch.nn.Embedding. xland: N(0, 0.02), biases 0. vintix: within blocks N(0,
/// √(2 / 5 width)), projections onto the residual stream N(0, 1 / (√width · layers)), biases 0
/// (Transformer._init_weights of its released code); around them PyTorch's.
class Initialisation {
 public:
  explicit Initialisation(const ModelOptions& options);

  /// Of a block.
  Linear linear(ParameterFactory& factory, const std::string& name, int64_t in, int64_t out,
                bool with_bias) const;
  /// Of a block, whose output is added to the residual stream.
  Linear residual_linear(ParameterFactory& factory, const std::string& name, int64_t in, int64_t out,
                         bool with_bias) const;
  /// Before and behind the blocks.
  Linear outer_linear(ParameterFactory& factory, const std::string& name, int64_t in, int64_t out) const;
  Embedding outer_embedding(ParameterFactory& factory, const std::string& name, int64_t count,
                            int64_t width) const;
  /// What stands for features of the step before an episode's first: (features). vintix: N(0, 1), as the
  /// padding of its released code; else N(0, 0.02).
  at::Tensor first_step(ParameterFactory& factory, const std::string& name, int64_t features) const;

 private:
  TransformerBlock preset_;
  double deviation_, residual_deviation_;  ///< within blocks; of no meaning for pre_norm
};

}  // namespace adtrain
