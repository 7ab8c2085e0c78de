#include "config/IncludeTree.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/File.h"
#include "base/Text.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// "; did you mean configs/run.yaml?" where a file with a similar name is beside the missing one.
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

bool is_file(const fs::path& path) {
  std::error_code absent;
  return fs::is_regular_file(path, absent);
}

/// The path without links; the path itself where it cannot be resolved.
fs::path without_links(const fs::path& path) {
  std::error_code unknown;
  const fs::path resolved = fs::weakly_canonical(path, unknown);
  return unknown ? path : resolved;
}

}  // namespace

/// Collects entries in reverse order of effect: the first entry of each key counts.
class IncludeTree::LastWord {
 public:
  /// Whether a file is encountered for the first time, which is where it takes effect last: its entries from
  /// earlier inclusions are overridden by themselves.
  bool takes(const std::string& file) { return files_.insert(file).second; }

  void add(const std::vector<Entry>& entries) {
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
      if (keys_.insert(entry->key).second) backwards_.push_back(*entry);
    }
  }
  std::vector<Entry> in_order() && {
    std::reverse(backwards_.begin(), backwards_.end());
    return std::move(backwards_);
  }

 private:
  std::set<std::string> files_, keys_;
  std::vector<Entry> backwards_;
};

IncludeTree::IncludeTree(const fs::path& file) : root_(file.string()) {
  if (!is_file(file)) {
    errors_.push_back(fmt::format("{}: found no such file; expected a YAML configuration{}",
                                  abridged(file.string()), suggestion(file)));
    return;
  }
  std::vector<Includer> chain;
  read(file, chain);
}

YamlFile IncludeTree::parse(const fs::path& file) {
  YamlFile yaml;
  try {
    bytes_ += fs::file_size(file);
    if (bytes_ <= kMostBytes) return YamlFile::parse(read_file(file), file.string());
    yaml.errors.push_back(fmt::format("{}: found a configuration of {} up to this file; expected at most {}",
                                      file.string(), human_bytes(static_cast<double>(bytes_)),
                                      human_bytes(static_cast<double>(kMostBytes))));
  } catch (const fs::filesystem_error& fault) {
    yaml.errors.push_back(
        fmt::format("{}: found an unreadable file ({})", file.string(), fault.code().message()));
  }
  return yaml;
}

void IncludeTree::read(const fs::path& file, std::vector<Includer>& chain) {
  YamlFile& yaml = (files_[file.string()].yaml = parse(file));
  errors_.insert(errors_.end(), yaml.errors.begin(), yaml.errors.end());
  warnings_.insert(warnings_.end(), yaml.warnings.begin(), yaml.warnings.end());

  chain.push_back({without_links(file), file.string()});
  for (const Entry& include : yaml.includes) read_include(include, file, chain);
  chain.pop_back();
}

void IncludeTree::read_include(const Entry& include, const fs::path& including,
                               std::vector<Includer>& chain) {
  const fs::path beside = (including.parent_path() / include.text).lexically_normal();
  const fs::path from_here = fs::path(include.text).lexically_normal();
  if (!is_file(beside) && !is_file(from_here)) {
    errors_.push_back(fmt::format(
        "{}: include: found neither {}, beside the including file, nor {}, from the working "
        "directory; expected an existing file{}",
        include.origin.text(), abridged(beside.string()), abridged(from_here.string()), suggestion(beside)));
    return;
  }
  const fs::path& file = is_file(beside) ? beside : from_here;

  const bool is_new = !files_.contains(file.string());
  if (!refuse_circle(include, file, chain) && !(is_new && refuse_one_more(include, file))) {
    files_[including.string()].includes.push_back(file.string());
    if (is_new) read(file, chain);
  }
}

bool IncludeTree::refuse_circle(const Entry& include, const fs::path& file,
                                const std::vector<Includer>& chain) {
  const fs::path canonical = without_links(file);
  const auto open = std::find_if(chain.begin(), chain.end(),
                                 [&](const Includer& includer) { return includer.canonical == canonical; });
  if (open == chain.end()) return false;
  std::vector<std::string> circle;
  for (auto includer = open; includer != chain.end(); ++includer) circle.push_back(includer->shown);
  circle.push_back(file.string());
  errors_.push_back(fmt::format("{}: include: found a circle, {}; expected no file to include itself",
                                include.origin.text(), join(circle, " -> ")));
  return true;
}

bool IncludeTree::refuse_one_more(const Entry& include, const fs::path& file) {
  if (files_.size() < kMostFiles) return false;
  errors_.push_back(
      fmt::format("{}: include: found {}, one file more than the {} that a configuration may be "
                  "made of; expected fewer: join some of them",
                  include.origin.text(), file.string(), kMostFiles));
  return true;
}

std::vector<Entry> IncludeTree::entries() const {
  LastWord last_word;
  collect(root_, last_word);
  return std::move(last_word).in_order();
}

/// An including file overrides what it includes, and later includes override earlier ones.
void IncludeTree::collect(const std::string& name, LastWord& last_word) const {
  const auto file = files_.find(name);
  if (file == files_.end() || !last_word.takes(name)) return;
  last_word.add(file->second.yaml.entries);
  const std::vector<std::string>& includes = file->second.includes;
  for (auto include = includes.rbegin(); include != includes.rend(); ++include) collect(*include, last_word);
}

}  // namespace adtrain
