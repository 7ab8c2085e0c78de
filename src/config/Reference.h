#pragma once

#include <string>
#include <vector>

#include "config/Section.h"

namespace adtrain {

/// The reference of all keys for a terminal: allowed values with units, default, sentence and other names, by
/// section.
std::string explain(const std::vector<Section*>& sections);

/// The same as a JSON object {"sections": [{"title", "keys": [...], "ignored": [...]}]}.
std::string explain_json(const std::vector<Section*>& sections);

}  // namespace adtrain
