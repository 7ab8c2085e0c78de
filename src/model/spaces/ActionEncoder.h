#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "environments/TaskSpaces.h"
#include "model/Initialisation.h"
#include "model/spaces/SymbolicCells.h"
#include "model/spaces/VectorEncoder.h"

namespace adtrain {

/// Makes features of actions: of whole numbers the sum of an embedding of each, of real ones those of a
/// VectorEncoder. With block vintix as Vintix does (arXiv:2501.19400), whose embeddings go through a linear
/// layer and LeakyReLU, and whose vectors through an MLP. Not thread-safe.
class ActionEncoder {
 public:
  ActionEncoder(ParameterFactory& factory, const ModelOptions& options, const Space& space, int64_t features,
                const Initialisation& initial);

  /// (B, T, …) of the space -> (B, T, features) of the parameters' type. Whole numbers below their start, as
  /// the zeros that stand where nothing was done, count as the first value.
  at::Tensor operator()(const at::Tensor& actions) const;

 private:
  std::optional<VectorEncoder> of_vectors_;  ///< of a Box; else the following
  std::optional<CountedFromStart> counted_;
  std::vector<Embedding> tables_;  ///< of each element
  Linear linear_;                  ///< vintix only
};

}  // namespace adtrain
