#include "config/YamlFile.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "base/Text.h"
#include "base/Words.h"
#include "config/OneDocument.h"

namespace adtrain {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Turns one parsed text into a YamlFile, key by key.
class Reader {
 public:
  Reader(const std::string& text, const std::string& source) : lines_(lines_of(text)), source_(source) {
    try {
      read(OneDocument::parse(text));
    } catch (const YAML::Exception& fault) {
      blame_syntax(fault);
    }
  }

  YamlFile take() { return std::move(file_); }

 private:
  void read(const OneDocument& document) {
    const YAML::Node& root = document.root;
    if (document.more) {
      blame_more(document.more->line + 1);
    } else if (!root.IsDefined() || root.IsNull()) {
      error(1, "found nothing but comments; expected `key: value` lines");
    } else if (!root.IsMap()) {
      error(line_of(root),
            fmt::format("found {}; expected `key: value` lines", Entry::of("", root, {}).found()));
    } else {
      for (const auto& pair : root) read_pair(pair.first, pair.second);
    }
  }

  /// Reports text after the end of the document.
  void blame_more(int64_t first) {
    const bool is_marked = std::any_of(lines_.begin(), lines_.end(), [](const std::string& text) {
      return text.starts_with("---") || text.starts_with("...");
    });
    if (is_marked) {
      error(first, "found a second YAML document; expected one; remove the line `---`");
    } else {
      error(first, fmt::format("found `{}`; expected valid YAML, a line `key: value`",
                               abridged(trimmed(line(first)))));
    }
  }

  void read_pair(const YAML::Node& key, const YAML::Node& value) {
    if (!key.IsScalar()) {
      error(line_of(key), fmt::format("found {} as a key; expected a word", Entry::of("", key, {}).found()));
    } else if (never_closed(value)) {
      error(line_of(value),
            fmt::format("{}: found `{}`, whose quote does not end on its line; expected the closing quote",
                        abridged(key.Scalar()), abridged(trimmed(line(line_of(value))))));
    } else if (key.Scalar() == "include") {
      read_include(key, value);
    } else {
      add(Entry::of(key.Scalar(), value, {source_, line_of(key)}));
    }
  }

  void read_include(const YAML::Node& key, const YAML::Node& value) {
    const bool is_list = value.IsSequence() && value.size() > 0;
    const bool is_names =
        value.IsScalar() || (is_list && std::all_of(value.begin(), value.end(),
                                                    [](const YAML::Node& item) { return item.IsScalar(); }));
    const Origin origin{source_, line_of(key)};
    if (!is_names) {
      error(origin.line, fmt::format("include: found {}; expected a file's name or a list of them",
                                     Entry::of("include", value, origin).found()));
    } else if (value.IsScalar()) {
      file_.includes.push_back(Entry::of("include", value, origin));
    } else {
      for (const YAML::Node& item : value) {
        file_.includes.push_back(Entry::of("include", item, {source_, line_of(item)}));
      }
    }
  }

  void add(Entry entry) {
    const auto [place, is_new] = places_.emplace(entry.key, file_.entries.size());
    if (is_new) return file_.entries.push_back(std::move(entry));
    const Entry* earlier = &file_.entries[place->second];
    if (earlier->same_value(entry)) {
      file_.warnings.push_back(
          fmt::format("{}: {}: found again with the same value as in line {}; one can go",
                      entry.origin.text(), abridged(entry.key), earlier->origin.line));
    } else {
      error(entry.origin.line,
            fmt::format("{}: found {}, but line {} says {}; expected the key once", abridged(entry.key),
                        entry.found(), earlier->origin.line, earlier->found()));
    }
  }

  /// Whether a quoted text lacks its closing quote: yaml-cpp then takes the rest of the file into it.
  bool never_closed(const YAML::Node& value) const {
    if (!value.IsScalar() || value.Tag() != "!") return false;
    const std::string& text = line(line_of(value));
    const auto opening = static_cast<size_t>(value.Mark().column);
    if (opening >= text.size() || (text[opening] != '\'' && text[opening] != '"')) return false;
    return text.find(text[opening], opening + 1) == std::string::npos;
  }

  void blame_syntax(const YAML::Exception& fault) {
    const int64_t blamed = blamed_line(std::max(0, fault.mark.line) + 1);
    error(blamed, fmt::format("found `{}`; expected valid YAML, a line `key: value` ({})",
                              abridged(trimmed(line(blamed))), abridged(reason_of(fault))));
  }

  /// The line to blame. yaml-cpp reports a line without its colon at the next line, and an open bracket at
  /// the end of the text; this finds the line at fault.
  int64_t blamed_line(int64_t reported) const {
    const int64_t before = last_written(reported - 1);
    if (before == 0) return reported;
    const std::string text = trimmed(line(before));
    const bool is_pair = text.find(": ") != std::string::npos || text.ends_with(':');
    return is_pair && is_written(line(reported)) ? reported : before;
  }

  static bool is_written(const std::string& line) {
    return !trimmed(line).empty() && trimmed(line)[0] != '#';
  }

  /// The last line up to `number` that is more than a comment; 0 where there is none.
  int64_t last_written(int64_t number) const {
    while (number > 0 && !is_written(line(number))) --number;
    return number;
  }

  const std::string& line(int64_t number) const {
    static const std::string kNoLine;
    const auto index = static_cast<size_t>(number - 1);
    return index < lines_.size() ? lines_[index] : kNoLine;
  }

  static int64_t line_of(const YAML::Node& node) { return node.Mark().line + 1; }

  void error(int64_t line, const std::string& message) {
    file_.errors.push_back(fmt::format("{}: {}", Origin{source_, line}.text(), message));
  }

  YamlFile file_;
  std::map<std::string, size_t> places_;  ///< in file_.entries, by key
  std::vector<std::string> lines_;
  std::string source_;
};

}  // namespace

YamlFile YamlFile::parse(const std::string& text, const std::string& source) {
  return Reader(text, source).take();
}

}  // namespace adtrain
