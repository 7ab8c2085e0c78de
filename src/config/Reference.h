#pragma once

#include <string>
#include <vector>

#include "config/Section.h"

namespace adtrain {

/// The reference of all keys for a terminal: allowed values with units, default, sentence and other names, by
/// section.
std::string explain(const std::vector<Section*>& sections);

/// Every key with its present value as a JSON object, on one line.
std::string values_json(const std::vector<Section*>& sections);

/// The reference as a JSON object {"sections": [{"title", "keys": [...], "ignored": [...]}]}.
std::string explain_json(const std::vector<Section*>& sections);

}  // namespace adtrain
