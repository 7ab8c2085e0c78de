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
    refuse(fault.msg);
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
  const std::set<std::string> overridden = overridden_by(map);
  drop(key);
  for (const auto& pair : YAML::Load(map.text)) {
    const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "";
    const auto known = names.find(name);
    const std::string flat = known == names.end() ? key + "." + name : known->second;
    if (find(flat) == nullptr || overridden.contains(flat)) put(Entry::of(flat, pair.second, map.origin));
  }
}

void Document::rename(const std::string& key, const std::string& to, const std::string& text) {
  const Entry renamed = {to, Entry::Kind::kScalar, text, find(key)->origin};
  const bool overrides = find(to) == nullptr || overridden_by(*find(key)).contains(to);
  drop(key);
  if (overrides) put(renamed);
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

std::set<std::string> Document::overridden_by(const Entry& entry) const {
  std::set<std::string> keys;
  for (const Entry& earlier : entries_) {
    if (earlier.key == entry.key) break;
    if (earlier.origin.source != entry.origin.source) keys.insert(earlier.key);
  }
  return keys;
}

void Document::put(Entry entry) {
  std::erase_if(entries_, [&](const Entry& overridden) { return overridden.key == entry.key; });
  entries_.push_back(std::move(entry));
}

}  // namespace adtrain
