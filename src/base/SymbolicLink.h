#pragma once

#include <filesystem>

namespace adtrain {

/// Makes `link` a symbolic link to the folder `target`, as a name relative to the link's folder. Replaces an
/// older link atomically, and flushes the folder. A link that is being written ends in `.tmp`. Throws
/// std::filesystem::filesystem_error; an older link is untouched then.
void point_link(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace adtrain
