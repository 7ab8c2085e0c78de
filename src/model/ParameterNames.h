#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace adtrain {

/// What names say of parameters, in all networks here but plug-ins', whose names are their own.

/// Number of the transformer block that the parameter belongs to; nothing where it belongs to none.
std::optional<int64_t> block_number(std::string_view name);
/// Whether the network uses it after its blocks alone.
bool comes_after_blocks(std::string_view name);
/// Whether it stands between the tasks' spaces and the blocks: in an encoder of observations, actions or
/// tokens, or in a head. So its shape, or whether it exists, depends on the spaces.
bool is_of_spaces(std::string_view name);

}  // namespace adtrain
