#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// The command line of `adtrain import histories`.
struct ImportHistoriesRequest {
  /// One task each: a Minari data set, or several with commas between, which are histories of the task. Each
  /// is a path, or a name under Minari's own folder.
  std::vector<std::string> tasks;
  std::filesystem::path out;  ///< the file to write, of version 2
  int compression = 4;        ///< gzip's level, 0 for none
  bool overwrite = false;
  bool json = false;
};

/// Writes one history file of Minari data sets, and prints what it then holds and how its tasks learnt: with
/// a notice where returns do not rise, as Minari does not promise that its episodes lie in the order in which
/// an agent learnt. The file is complete or not there; what a stopped import has finished is continued.
/// Throws DataError where a data set is missing, damaged, of other spaces than the first or of such as are
/// not supported, and where `out` exists.
ExitCode import_histories(const ImportHistoriesRequest& request);

}  // namespace adtrain
