#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace adtrain {

/// The text without spaces, tabs and carriage returns before and after it.
std::string trimmed(std::string_view text);

/// The trimmed texts between commas; empty ones too, so one at least: "1, 2," has three.
std::vector<std::string> between_commas(std::string_view text);

}  // namespace adtrain
