#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model/Parameters.h"
#include "model/QuantisedLinear.h"

namespace adtrain {

/// A matrix as the tensors of a file, under the names that bitsandbytes and Transformers give them: for the
/// weight X.weight of 4 bits X.weight, X.weight.absmax, .quant_map, .nested_absmax, .nested_quant_map and
/// .quant_state.bitsandbytes__nf4, a JSON text in bytes; of 8 bits X.weight, X.SCB and X.weight_format. Share
/// the matrix' memory.
std::vector<NamedTensor> quantised_tensors(const std::string& weight, const QuantisedMatrix& matrix);

/// Whether some of a file's tensors are those of quantised matrices.
bool hold_quantised(const std::vector<NamedTensor>& tensors);

/// What a file's tensors are, once those of quantised matrices are put together.
struct QuantisedTensors {
  QuantisedMatrices matrices;       ///< by the names of their weights
  std::vector<NamedTensor> others;  ///< in their order

  /// Zeros of the matrices' shapes, under the names of their weights: what stands in their place where a
  /// network has its other parameters.
  std::vector<NamedTensor> places() const;

  /// Throws CheckpointError that names `file` and the tensor where one is missing, of another type or size,
  /// or not what the others say.
  static QuantisedTensors of(std::vector<NamedTensor> tensors, const std::filesystem::path& file);
};

}  // namespace adtrain
