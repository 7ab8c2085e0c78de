#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/ModelOptions.h"
#include "model/Parameters.h"

namespace adtrain {

/// Freezes the parameters that `patterns` fit (see names_that_fit). Nothing happens where there are none.
/// Throws ConfigError, in which `place` names the key, where a pattern fits nothing, and where nothing would
/// be left to train.
void freeze(ParameterBuffer& parameters, const std::string& patterns, const std::string& place);

/// What is frozen in few words: modules all of whose parameters are, and single parameters.
std::vector<std::string> frozen_modules(const ParameterBuffer& parameters);

/// What remains of a network's backward pass.
struct RemainingBackward {
  /// The first blocks, up to the first parameter that trains, have no backward pass: they keep nothing for
  /// it.
  int64_t forward_only = 0;
  /// Numbers of later blocks, some or all of whose parameters are frozen.
  std::vector<int64_t> partly = {};
  /// fp32 of the largest of these, all parameters together.
  int64_t largest_partly_bytes = 0;
};
/// Of a network of these options. A plug-in's: nothing is known, as if all of it had a backward pass.
RemainingBackward remaining_backward(const ModelOptions& options, const ParameterBuffer& parameters);

}  // namespace adtrain
