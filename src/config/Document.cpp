#include "config/Document.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "base/File.h"
#include "base/Text.h"
#include "config/YamlFile.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// "; did you mean configs/run.yaml?" where a file with a similar name stands beside the missing one.
std::string suggestion(const fs::path& missing) {
  const fs::path folder = missing.has_parent_path() ? missing.parent_path() : ".";
  std::vector<std::string> names;
  std::error_code unreadable;
  for (const auto& file : fs::directory_iterator(folder, unreadable)) {
    if (file.is_regular_file(unreadable)) names.push_back(file.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::string nearest = nearest_name(missing.filename().string(), names);
  if (nearest.empty()) return "";
  return fmt::format("; did you mean {}?", (missing.parent_path() / nearest).string());
}

/// A file that is included on two ways has its faults only once.
void append_new(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  for (const std::string& line : more) {
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
}

bool is_file(const fs::path& path) {
  std::error_code absent;
  return fs::is_regular_file(path, absent);
}

}  // namespace

void Document::read_file(const fs::path& file) {
  if (!is_file(file)) {
    errors_.push_back(fmt::format("{}: found no such file; expected a YAML configuration{}", file.string(),
                                  suggestion(file)));
    return;
  }
  std::vector<Includer> chain;
  read(file, chain);
}

void Document::read(const fs::path& file, std::vector<Includer>& chain) {
  YamlFile yaml;
  try {
    yaml = YamlFile::parse(adtrain::read_file(file), file.string());
  } catch (const fs::filesystem_error& fault) {
    yaml.errors.push_back(
        fmt::format("{}: found an unreadable file ({})", file.string(), fault.code().message()));
  }
  append_new(errors_, yaml.errors);
  append_new(warnings_, yaml.warnings);

  chain.push_back({fs::weakly_canonical(file), file.string()});
  for (const Entry& include : yaml.includes) read_include(include, file, chain);
  chain.pop_back();
  for (Entry& entry : yaml.entries) put(std::move(entry));
}

void Document::read_include(const Entry& include, const fs::path& including, std::vector<Includer>& chain) {
  const fs::path beside = (including.parent_path() / include.text).lexically_normal();
  const fs::path from_here = fs::path(include.text).lexically_normal();
  if (!is_file(beside) && !is_file(from_here)) {
    errors_.push_back(
        fmt::format("{}: include: found neither {}, beside the including file, nor {}, from the working "
                    "directory; expected an existing file{}",
                    include.origin.text(), beside.string(), from_here.string(), suggestion(beside)));
    return;
  }
  const fs::path& file = is_file(beside) ? beside : from_here;

  const fs::path canonical = fs::weakly_canonical(file);
  const auto open = std::find_if(chain.begin(), chain.end(),
                                 [&](const Includer& includer) { return includer.canonical == canonical; });
  if (open == chain.end()) return read(file, chain);
  std::vector<std::string> circle;
  for (auto includer = open; includer != chain.end(); ++includer) circle.push_back(includer->shown);
  circle.push_back(file.string());
  errors_.push_back(fmt::format("{}: include: found a circle, {}; expected no file to include itself",
                                include.origin.text(), join(circle, " -> ")));
}

void Document::set(const std::string& assignment) {
  const Origin origin{"command line", 0};
  const size_t equals = assignment.find('=');
  if (equals == 0 || equals == std::string::npos) {
    errors_.push_back(fmt::format("{}: found '{}'; expected key=value", origin.text(), assignment));
    return;
  }
  const std::string key = assignment.substr(0, equals);
  const std::string value = assignment.substr(equals + 1);
  if (key == "include") {
    errors_.push_back(
        fmt::format("{}: include: found '{}'; expected it in a file only", origin.text(), value));
    return;
  }
  try {
    put(Entry::of(key, YAML::Load(value), origin));
  } catch (const YAML::Exception& fault) {
    errors_.push_back(
        fmt::format("{}: {}: found '{}'; expected a YAML scalar ({})", origin.text(), key, value, fault.msg));
  }
}

void Document::put(Entry entry) {
  std::erase_if(entries_, [&](const Entry& overridden) { return overridden.key == entry.key; });
  entries_.push_back(std::move(entry));
}

}  // namespace adtrain
