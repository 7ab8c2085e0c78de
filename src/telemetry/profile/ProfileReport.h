#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "telemetry/profile/RankProfile.h"

namespace adtrain {

/// The profile of several ranks for a person: the table of the first of them, with its `most_rows` longest
/// rows and names of at most `name_columns` characters, then the parts of a step, one line a rank. `ranks` is
/// not empty. Lines end with a line break.
std::string profile_text(const std::vector<RankProfile>& ranks, size_t most_rows, size_t name_columns);

/// The same for programs: all rows of all ranks.
nlohmann::ordered_json profile_json(const std::vector<RankProfile>& ranks);

}  // namespace adtrain
