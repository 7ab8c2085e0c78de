#include "config/Document.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "base/Text.h"
#include "config/IncludeTree.h"
#include "config/OneDocument.h"

namespace adtrain {
namespace {

/// On the command line the order decides, in a file it does not.
bool of_one_file(const Entry& one, const Entry& other) {
  return one.origin.line > 0 && one.origin.source == other.origin.source;
}

}  // namespace

void Document::read_file(const std::filesystem::path& file) {
  const IncludeTree tree(file);
  errors_.insert(errors_.end(), tree.errors().begin(), tree.errors().end());
  warnings_.insert(warnings_.end(), tree.warnings().begin(), tree.warnings().end());
  std::vector<Entry> entries = tree.entries();
  std::set<std::string> overridden;
  for (const Entry& entry : entries) overridden.insert(entry.key);
  std::erase_if(entries_, [&](const Entry& earlier) { return overridden.contains(earlier.key); });
  std::move(entries.begin(), entries.end(), std::back_inserter(entries_));
}

void Document::set(const std::string& assignment, const std::string& source) {
  const Origin origin{source, 0};
  const size_t equals = assignment.find('=');
  if (equals == 0 || equals == std::string::npos) {
    errors_.push_back(fmt::format("{}: found '{}'; expected key=value", origin.text(), abridged(assignment)));
    return;
  }
  const std::string key = assignment.substr(0, equals);
  const std::string value = assignment.substr(equals + 1);
  if (!is_utf8(value)) {  // the parser would take some such bytes for another encoding
    errors_.push_back(
        fmt::format("{}: {}: found '{}', which is not UTF-8; expected a text in UTF-8 without null bytes",
                    origin.text(), abridged(key), abridged(value)));
    return;
  }
  if (key == "include") {
    errors_.push_back(
        fmt::format("{}: include: found '{}'; expected it in a file only", origin.text(), abridged(value)));
    return;
  }
  const auto refuse = [&](const std::string& reason) {
    errors_.push_back(fmt::format("{}: {}: found '{}'; expected a YAML scalar ({})", origin.text(),
                                  abridged(key), abridged(value), abridged(reason)));
  };
  try {
    const OneDocument document = OneDocument::parse(value);
    if (document.more) return refuse("more follows it");
    put(Entry::of(key, document.root, origin));
  } catch (const YAML::Exception& fault) {
    refuse(reason_of(fault));
  }
}

std::vector<std::string> Document::texts_of(const std::string& key) const {
  std::vector<std::string> texts;
  const auto entry = std::ranges::find(entries_, key, &Entry::key);
  if (entry == entries_.end()) return texts;
  if (entry->kind == Entry::Kind::kScalar) {
    std::istringstream rest(entry->text);
    for (std::string text; std::getline(rest, text, ':');) {
      if (!text.empty()) texts.push_back(text);
    }
  } else if (entry->kind == Entry::Kind::kList) {
    for (const YAML::Node& item : YAML::Load(entry->text)) {
      if (!item.IsScalar()) return {};
      texts.push_back(item.Scalar());
    }
  }
  return texts;
}

const Entry* Document::find(const std::string& key) const {
  const auto entry = std::ranges::find(entries_, key, &Entry::key);
  return entry == entries_.end() ? nullptr : &*entry;
}

void Document::unfold(const std::string& key, const std::map<std::string, std::string>& names) {
  const Entry* found = find(key);
  if (found == nullptr || found->kind != Entry::Kind::kMap) return;
  const Entry map = *found;
  for (const auto& [name, flat] : names) names_in_maps_[key].push_back(name);
  for (const auto& pair : *map.map) {
    const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "";
    const auto known = names.find(name);
    const std::string flat = known == names.end() ? key + "." + name : known->second;
    Origin origin = map.origin;
    if (origin.line > 0) origin.line = pair.first.Mark().line + 1;
    const Entry entry = Entry::of(flat, pair.second, origin);
    if (const Entry* other = find(flat); other != nullptr && of_one_file(*other, map)) {
      compare(*other, entry, key + "." + name);
    } else {
      put_before(key, entry);
    }
  }
  drop(key);
}

std::vector<std::string> Document::names_in(const std::string& map) const {
  const auto found = names_in_maps_.find(map);
  return found == names_in_maps_.end() ? std::vector<std::string>() : found->second;
}

void Document::rename(const std::string& key, const std::string& to, const std::string& text) {
  const Entry renamed = {to, Entry::Kind::kScalar, text, find(key)->origin};
  if (const Entry* other = find(to); other == nullptr || !of_one_file(*other, renamed)) {
    put_before(key, renamed);
  }
  drop(key);
}

void Document::put_beside(const std::string& chooser, const std::string& key, const std::string& text) {
  const Entry chosen = {key, Entry::Kind::kScalar, text, find(chooser)->origin};
  const Entry* const other = find(key);
  if (other == nullptr || other->origin.source != chosen.origin.source) put_before(chooser, chosen);
}

void Document::add(const std::string& key, const std::string& text, Origin origin) {
  entries_.push_back({key, Entry::Kind::kScalar, text, std::move(origin)});
}

void Document::drop(const std::string& key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
}

void Document::refuse(const std::string& key, const std::string& fault) {
  const auto entry = std::ranges::find(entries_, key, &Entry::key);
  errors_.push_back(fmt::format("{}: {}: {}", entry->origin.text(), key, fault));
  entries_.erase(entry);
}

void Document::replace(const std::string& key, const std::string& text) {
  const auto entry = std::ranges::find(entries_, key, &Entry::key);
  entry->kind = Entry::Kind::kScalar;
  entry->text = text;
}

void Document::compare(const Entry& first, const Entry& second, const std::string& name) {
  if (first.same_value(second)) {
    warnings_.push_back(fmt::format("{}: {}: found again with the same value, after {} ({}); one can go",
                                    second.origin.text(), abridged(name), first.key, first.origin.text()));
  } else {
    errors_.push_back(fmt::format("{}: {}: found {}, but {} is {} ({}); expected one of them",
                                  second.origin.text(), abridged(name), second.found(), first.key,
                                  first.found(), first.origin.text()));
  }
}

void Document::put_before(const std::string& key, Entry entry) {
  auto other = std::ranges::find(entries_, entry.key, &Entry::key);
  if (other != entries_.end()) {
    if (std::ranges::find(other, entries_.end(), key, &Entry::key) == entries_.end()) return;
    entries_.erase(other);
  }
  entries_.insert(std::ranges::find(entries_, key, &Entry::key), std::move(entry));
}

void Document::put(Entry entry) {
  std::erase_if(entries_, [&](const Entry& overridden) { return overridden.key == entry.key; });
  entries_.push_back(std::move(entry));
}

}  // namespace adtrain
