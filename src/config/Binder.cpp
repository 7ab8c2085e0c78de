#include "config/Binder.h"

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "config/OtherNames.h"

namespace adtrain {
namespace {

template <class Value>
void claim(std::map<std::string, Value>& names, const std::string& name, const Value& value, bool taken) {
  if (taken || !names.emplace(name, value).second) {
    throw std::logic_error(fmt::format("the configuration key {} is declared twice", name));
  }
}

/// As many as a user reads; a file of another format gives an error for every line.
constexpr size_t kMostErrorsShown = 50;

std::string listed(const std::vector<std::string>& errors) {
  const size_t shown = std::min(errors.size(), kMostErrorsShown);
  std::string text;
  for (size_t i = 0; i < shown; ++i) text += errors[i] + "\n";
  if (shown < errors.size()) text += fmt::format("… and {} more\n", errors.size() - shown);
  return text + fmt::format(
                    "{} error{} in the configuration; `adtrain validate --explain` lists every key and "
                    "what it may be",
                    errors.size(), errors.size() == 1 ? "" : "s");
}

}  // namespace

/// The binding of one document to the sections: which entry decides each key, and all errors.
class Binder::Binding {
 public:
  Binding(const Binder& binder, const Document& document)
      : binder_(binder), document_(document), errors_(document.errors()), notices_(document.warnings()) {
    for (const Entry& entry : document.entries()) choose(entry);
    for (const Entry& entry : document.entries()) {
      const Key* key = key_of(entry);
      if (key != nullptr && deciding_.at(key) == &entry) assign(entry);
    }
  }

  void add(const Findings& findings) {
    for (const auto& [name, message] : findings.all()) {
      const auto known = binder_.keys_.find(name);
      const Key* key = known == binder_.keys_.end() ? nullptr : known->second;
      if (refused_.contains(key)) continue;  // the member's value is not what the user wrote
      const auto decided = deciding_.find(key);
      errors_.push_back(decided == deciding_.end() ? fmt::format("{} (default value): {}", name, message)
                                                   : fmt::format("{}: {}: {}", decided->second->origin.text(),
                                                                 decided->second->key, message));
    }
  }

  /// Throws where there was any error.
  std::vector<std::string> finish() const {
    if (!errors_.empty()) throw ConfigError(listed(errors_));
    return notices_;
  }

 private:
  Key* key_of(const Entry& entry) const {
    const auto known = binder_.keys_.find(entry.key);
    return known == binder_.keys_.end() ? nullptr : known->second;
  }

  void choose(const Entry& entry) {
    if (const auto ignored = binder_.ignored_.find(entry.key); ignored != binder_.ignored_.end()) {
      notices_.push_back(fmt::format("{}: {}: ignored: {}", entry.origin.text(), entry.key, ignored->second));
      return;
    }
    const Key* key = key_of(entry);
    if (key == nullptr) return refuse_unknown(entry);
    const Entry*& deciding = deciding_[key];
    if (deciding != nullptr && deciding->origin.source == entry.origin.source) {
      compare_spellings(*deciding, entry);
    }
    deciding = &entry;
  }

  /// Compares two entries of one source that name the same key differently.
  void compare_spellings(const Entry& first, const Entry& second) {
    const std::string place = fmt::format("{}: {}: ", second.origin.text(), second.key);
    if (first.same_value(second)) {
      notices_.push_back(
          fmt::format("{}means the same as {} ({}); one can go", place, first.key, first.origin.text()));
    } else {
      errors_.push_back(
          fmt::format("{}found {}, but {}, another name of the same key, is {} ({}); expected one of them",
                      place, second.found(), first.key, first.found(), first.origin.text()));
    }
  }

  std::vector<std::string> all_names() const {
    std::vector<std::string> names;
    for (const auto& [name, key] : binder_.keys_) names.push_back(name);
    for (const auto& [name, reason] : binder_.ignored_) names.push_back(name);
    return names;
  }

  /// The name of a pair in a nested map is what follows the map's.
  std::string suggestion_for(const std::string& key) const {
    const std::string name = key.substr(key.find('.') + 1);
    if (const auto known = binder_.keys_.find(key_called(name)); known != binder_.keys_.end()) {
      const std::string& unit = known->second->unit_name();
      return unit.empty() ? known->first : fmt::format("{} (in {})", known->first, unit);
    }
    // Only errors that are shown need one by spelling, which takes time.
    if (errors_.size() >= kMostErrorsShown) return "";
    const std::vector<std::string> in_map = document_.names_in(key.substr(0, key.find('.')));
    return nearest_name(name, in_map.empty() ? all_names() : in_map);
  }

  void refuse_unknown(const Entry& entry) {
    const std::string nearest = suggestion_for(entry.key);
    errors_.push_back(
        fmt::format("{}: {}: found an unknown {}; expected {}{}", entry.origin.text(), abridged(entry.key),
                    entry.kind == Entry::Kind::kMap ? "nested map, " + abridged(entry.text) : "key",
                    entry.kind == Entry::Kind::kMap ? "flat `key: value` lines" : "one of the known keys",
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }

  void assign(const Entry& entry) {
    Key& key = *key_of(entry);
    std::optional<std::string> fault;
    if (entry.kind == Entry::Kind::kList || entry.kind == Entry::Kind::kMap) {
      fault = fmt::format("found {}; expected {}", entry.found(), key.allowed());
    } else {
      fault = key.assign(entry.text, entry.kind == Entry::Kind::kNull);
    }
    if (!fault) return;
    errors_.push_back(fmt::format("{}: {}: {}", entry.origin.text(), entry.key, *fault));
    refused_.insert(&key);
  }

  const Binder& binder_;
  const Document& document_;
  std::map<const Key*, const Entry*> deciding_;
  std::set<const Key*> refused_;
  std::vector<std::string> errors_, notices_;
};

Binder::Binder(const std::vector<Section*>& sections) {
  for (Section* section : sections) {
    for (Key& key : section->keys()) {
      claim(keys_, key.name(), &key, ignored_.contains(key.name()));
      for (const std::string& alias : key.aliases()) claim(keys_, alias, &key, ignored_.contains(alias));
    }
    for (const auto& [name, reason] : section->ignored()) claim(ignored_, name, reason, keys_.contains(name));
  }
}

std::vector<std::string> Binder::bind(const Document& document, const Check& check) const {
  Binding binding(*this, document);
  if (check && document.errors().empty()) {
    Findings findings;
    check(findings);
    binding.add(findings);
  }
  return binding.finish();
}

std::string resolved_yaml(const std::vector<Section*>& sections) {
  std::string yaml;
  for (const Section* section : sections) {
    if (section->keys().empty()) continue;
    yaml += fmt::format("{}# {}\n", yaml.empty() ? "" : "\n", section->title());
    for (const Key& key : section->keys()) yaml += fmt::format("{}: {}\n", key.name(), key.value_text());
  }
  return yaml;
}

}  // namespace adtrain
