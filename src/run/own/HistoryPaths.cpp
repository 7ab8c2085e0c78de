#include "run/own/HistoryPaths.h"

#include <algorithm>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <glob.h>

#include "base/Error.h"
#include "base/NearestPath.h"
#include "base/Text.h"
#include "base/Words.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHistories = "histories";

bool is_there(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

bool is_pattern(const std::string& text) {
  return text.find_first_of("*?[") != std::string::npos;
}

/// What fits a pattern of the shell's, in the order of the names' bytes, whatever the language.
std::vector<fs::path> fitting(const std::string& pattern) {
  glob_t found{};
  const std::unique_ptr<glob_t, decltype(&globfree)> freed(&found, globfree);
  std::vector<fs::path> paths;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) != 0) return paths;
  for (size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  std::ranges::sort(paths, {}, [](const fs::path& path) { return path.string(); });
  return paths;
}

/// One of the names in `histories`.
std::vector<fs::path> named(const RunConfig& config, const std::string& name) {
  if (is_there(name)) return {name};
  const std::string place = config.place_of(kHistories);
  if (!is_pattern(name)) {
    throw DataError(fmt::format("{}: {} does not exist; expected learning histories there{}", place, name,
                                nearest_path(name)));
  }
  std::vector<fs::path> paths = fitting(name);
  if (!paths.empty()) return paths;
  throw DataError(fmt::format("{}: nothing fits {}; expected files or folders with learning histories{}",
                              place, name, nearest_path(name)));
}

}  // namespace

void unfold_histories(Document& document) {
  const Entry* const found = document.find(kHistories);
  if (found == nullptr || found->kind == Entry::Kind::kNull || found->kind == Entry::Kind::kScalar) return;
  constexpr const char* kExpected = "expected files, folders or patterns such as data/*.hdf5";
  const std::vector<std::string> paths = document.texts_of(kHistories);
  const auto is_no_path = [&](const std::string& path) {
    return trimmed(path).empty() || (paths.size() > 1 && path.find(',') != std::string::npos);
  };
  const auto wrong = std::ranges::find_if(paths, is_no_path);
  if (found->kind == Entry::Kind::kMap || paths.empty()) {
    document.refuse(kHistories, fmt::format("found {}; {}", found->found(), kExpected));
  } else if (wrong != paths.end()) {
    document.refuse(kHistories,
                    fmt::format("found '{}' among several paths; {}, without commas in their names (? fits "
                                "any letter)",
                                abridged(*wrong), kExpected));
  } else {
    document.replace(kHistories, join(paths, ","));
  }
}

std::vector<fs::path> history_paths(const RunConfig& config) {
  if (!config.data.histories) {
    const fs::path file = config.history_file();
    if (is_there(file)) return {file};
    throw DataError(
        fmt::format("{} does not exist; expected learning histories there: run `adtrain collect` with "
                    "the same configuration, or name others by `histories`",
                    file.string()));
  }
  const std::string& text = *config.data.histories;
  if (is_there(text)) return {text};
  std::vector<fs::path> paths;
  std::map<std::string, std::string> names;  // by which each was found
  for (const std::string& name : between_commas(text)) {
    for (const fs::path& path : named(config, name)) {
      const auto [known, is_new] = names.try_emplace(path.lexically_normal().string(), name);
      if (!is_new) {
        throw DataError(fmt::format("{}: {} is named twice, by {} and by {}; expected each path once",
                                    config.place_of(kHistories), path.string(), known->second, name));
      }
      paths.push_back(path);
    }
  }
  return paths;
}

std::string name_of_histories(const RunConfig& config, const std::vector<fs::path>& paths) {
  if (paths.size() == 1) return paths.front().string();
  return fmt::format("{} ({} paths)", abridged(config.data.histories.value_or("")), paths.size());
}

}  // namespace adtrain
