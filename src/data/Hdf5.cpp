#include "data/Hdf5.h"

#include <cerrno>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "base/Error.h"
#include "data/HistoryFilePath.h"

namespace adtrain {
namespace {

std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

herr_t keep_description(unsigned depth, const H5E_error2_t* entry, void* text) {
  if (depth == 0 && entry->desc != nullptr) *static_cast<std::string*>(text) = entry->desc;
  return 0;
}

}  // namespace

Hdf5Turn::Hdf5Turn() : lock_(hdf5_mutex()) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::string hdf5_reason() {
  std::string reason = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_description, &reason);
  return reason;
}

Hdf5Handle open_hdf5(const std::filesystem::path& path) {
  expect_history_file(path);
  // Files that are read never change, so they need no lock, which network file systems may refuse.
  const Hdf5Handle how(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(how.get(), false, true);
  Hdf5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, how.get()), H5Fclose);
  if (!file.valid()) {
    if (access(path.c_str(), R_OK) != 0) {
      throw DataError(fmt::format("{}: found a file that this user may not read ({}); make it readable",
                                  path.string(), std::generic_category().message(errno)));
    }
    throw DataError(
        fmt::format("{}: not a readable HDF5 file ({} bytes; HDF5 says: {}); it may have been cut short in "
                    "copying; fetch or collect it again",
                    path.string(), std::filesystem::file_size(path), hdf5_reason()));
  }
  return file;
}

}  // namespace adtrain
