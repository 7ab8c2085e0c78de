#include "data/HistoryFilePath.h"

#include <fmt/format.h>

#include "base/Error.h"
#include "base/NearestPath.h"

namespace adtrain {

void expect_history_file(const std::filesystem::path& path) {
  if (std::filesystem::is_regular_file(path)) return;
  if (std::filesystem::is_directory(path)) {
    throw DataError(fmt::format("{}: a folder; expected a file of learning histories in HDF5{}",
                                path.string(), nearest_path(path / "*.hdf5")));
  }
  throw DataError(fmt::format(
      "{}: no such file; expected learning histories in HDF5; `adtrain collect` makes them", path.string()));
}

}  // namespace adtrain
