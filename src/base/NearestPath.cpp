#include "base/NearestPath.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code unreadable;
  for (auto entry = fs::directory_iterator(folder, unreadable); entry != fs::directory_iterator();
       entry.increment(unreadable)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with('.')) names.push_back(name);
    if (unreadable) break;
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string nearest_path(const fs::path& missing) {
  fs::path wrong = missing.lexically_normal();
  if (!wrong.has_filename()) wrong = wrong.parent_path();
  std::error_code unreadable;
  while (wrong.has_relative_path() && wrong.has_parent_path() &&
         !fs::is_directory(wrong.parent_path(), unreadable))
    wrong = wrong.parent_path();
  const fs::path folder = wrong.has_parent_path() ? wrong.parent_path() : fs::path(".");
  const std::vector<std::string> names = names_in(folder);
  const std::string nearest = nearest_name(wrong.filename().string(), names);
  if (!nearest.empty()) {
    return fmt::format("; did you mean {}?", wrong.has_parent_path() ? (folder / nearest).string() : nearest);
  }
  if (names.empty()) return "";
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) shown.push_back(abridged(names[i], 60));
  return fmt::format("; {} holds {}{}", wrong.has_parent_path() ? folder.string() : "this folder",
                     join(shown, ", "),
                     names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "");
}

}  // namespace adtrain
