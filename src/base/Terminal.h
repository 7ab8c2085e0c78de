#pragma once

#include <optional>
#include <string_view>

namespace adtrain {

/// The columns of the terminal that this descriptor is; nothing where it is none. They may change.
std::optional<int> terminal_columns(int output);

/// How many columns a terminal takes for UTF-8 text of characters that are one column wide.
int columns_of(std::string_view text);

}  // namespace adtrain
