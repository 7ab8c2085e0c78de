#pragma once

#include <filesystem>
#include <vector>

namespace adtrain {

/// Loads shared objects and lets them add task families and networks (include/adtrain/plugin.h), before
/// configurations are read that name these. A file that is loaded already is passed over. Throws ConfigError
/// where one cannot be loaded, is no plug-in of this interface and libtorch, adds nothing, or a name that is
/// taken.
void load_plugins(const std::vector<std::filesystem::path>& files);

}  // namespace adtrain
