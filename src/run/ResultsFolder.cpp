#include "run/ResultsFolder.h"

#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/WriteRemedy.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTriedBytes = 4096;  ///< a block of most file systems: of a full disk there is none

/// The folder itself and those above it that are not there, the innermost first. A link counts as there,
/// wherever it points.
std::vector<fs::path> missing_folders(fs::path folder) {
  std::vector<fs::path> missing;
  for (; folder.has_relative_path() && !fs::exists(fs::symlink_status(folder)); folder = folder.parent_path())
    missing.push_back(folder);
  return missing;
}

void write_and_remove(const fs::path& file) {
  try {
    write_file(file, std::string(kTriedBytes, '\0'));
  } catch (const fs::filesystem_error&) {
    std::error_code ignored;
    fs::remove(file, ignored);
    throw;
  }
  fs::remove(file);
}

/// `where`: the file or folder that could not be written; `to_mend`: the folder that has to be.
EnvironmentError unwritable(const ResultsFolder& folder, const fs::filesystem_error& error,
                            const fs::path& where, const fs::path& to_mend) {
  return EnvironmentError(
      fmt::format("results cannot be written into {}: {} [{}]; expected a folder that can be written, with "
                  "room in it: {}, or {}",
                  folder.path.string(), error.code().message(), where.string(), write_remedy(error, to_mend),
                  folder.otherwise));
}

}  // namespace

void ResultsFolder::check() const {
  fs::path tried = path;
  try {
    const std::vector<fs::path> missing = missing_folders(path);
    if (!missing.empty()) tried = missing.back().parent_path();
    if (tried.empty()) tried = ".";
    write_and_remove(temporary_beside(tried / "tried"));
  } catch (const fs::filesystem_error& error) {
    throw unwritable(*this, error, tried, tried);
  }
}

void ResultsFolder::write(const std::function<void()>& action) const {
  std::vector<fs::path> made;
  try {
    made = missing_folders(path);
    action();
  } catch (const fs::filesystem_error& error) {
    const EnvironmentError failure = unwritable(*this, error, error.path1(), path);  // before they are gone
    std::error_code absent_or_not_empty;
    for (const fs::path& folder : made) fs::remove(folder, absent_or_not_empty);
    throw failure;
  }
}

void ResultsFolder::ask_for_requeue() const {
  write_file_atomically(requeue(), "");
  fs::remove(failure());
}

void ResultsFolder::forget_earlier_starts() const {
  fs::remove(requeue());
  fs::remove(failure());
}

}  // namespace adtrain
