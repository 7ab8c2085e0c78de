#pragma once

#include <filesystem>
#include <string>

namespace adtrain {

/// What a path that does not exist may be meant by, as the end of a message: "; did you mean
/// data/xland.hdf5?" where the folder that should hold it has a similar name, else "; data holds a.hdf5,
/// b.hdf5 and 3 more". Of a path in a folder that does not exist either, the same of that folder. "" where
/// nothing can be said. May be a pattern, whose own letters are then compared.
std::string nearest_path(const std::filesystem::path& missing);

}  // namespace adtrain
