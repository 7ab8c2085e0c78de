#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "model/Parameters.h"
#include "model/QuantisedLinear.h"

namespace adtrain {

/// Names of the weights that quantisation is for: of all linear layers but heads, which stand after the
/// blocks, and those that the patterns `skipped` fit (see names_that_fit). Throws ConfigError, in which
/// `place` names the key of these, where a pattern fits no parameter, and where no linear layer is left. What
/// it fits may be what is not quantised anyway, as heads.
std::set<std::string> quantised_names(const ParameterBuffer& parameters, const std::string& skipped,
                                      const std::string& place);

/// The one form that all of a file's matrices have, which are linear layers of a network. Throws
/// CheckpointError, which names `file` and the weight, where they are not.
WeightQuantisation stored_form(const QuantisedMatrices& matrices, const ParameterBuffer& parameters,
                               const std::filesystem::path& file);

/// What a network's weights take, by arithmetic from their shapes.
struct QuantisedSize {
  /// Of each parameter, in their order, in bytes.
  std::vector<int64_t> parameters;
  int64_t total = 0;        ///< of these
  int64_t unquantised = 0;  ///< what all take in the type that the others have
  /// Weights that take no less than in that type.
  std::vector<std::string> without_gain;

  /// `names`: as quantised_names returns them. `type`: of the parameters that are not quantised.
  static QuantisedSize of(const ParameterBuffer& parameters, const std::set<std::string>& names,
                          const WeightQuantisation& how, at::ScalarType type);
};

}  // namespace adtrain
