#pragma once

#include <filesystem>

namespace adtrain {

/// Throws DataError where there is no such file, or a folder of this name. Needs no HDF5: whoever leaves the
/// reading to a ReaderProcess checks the path first.
void expect_history_file(const std::filesystem::path& path);

}  // namespace adtrain
