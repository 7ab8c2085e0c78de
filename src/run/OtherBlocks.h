#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "run/RunConfig.h"

namespace adtrain {

/// What the transformer blocks of two configurations do differently, a line for each setting: "tf_n_head: 2
/// in the weights, 4 here". Shapes do not tell all of it: with another number of heads, or with rotary
/// positions instead of none, weights load and mean something else. Of networks composed of pieces the pieces
/// count, whatever preset they come from.
std::vector<std::string> other_blocks(const RunConfig& of_weights, const RunConfig& here);

/// Throws ConfigError where a checkpoint's weights are of other blocks than the configuration's, which says
/// how. `state`: the manifest's, which holds the configuration that they were trained with. Where it has none
/// nothing is refused.
void refuse_other_blocks(const RunConfig& config, const nlohmann::json& state,
                         const std::filesystem::path& checkpoint);

}  // namespace adtrain
