#include "config/YamlFile.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

namespace adtrain {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string trimmed(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

/// Turns one parsed text into a YamlFile, key by key.
class Reader {
 public:
  Reader(const std::string& text, const std::string& source) : lines_(lines_of(text)), source_(source) {
    try {
      read(YAML::LoadAll(text));
    } catch (const YAML::Exception& fault) {
      blame_syntax(fault);
    }
  }

  YamlFile take() { return std::move(file_); }

 private:
  void read(const std::vector<YAML::Node>& documents) {
    if (documents.size() > 1) {
      error(line_of(documents[1]), "found a second YAML document; expected one; remove the line `---`");
    } else if (documents.empty() || documents[0].IsNull()) {
      error(1, "found nothing but comments; expected `key: value` lines");
    } else if (!documents[0].IsMap()) {
      error(line_of(documents[0]),
            fmt::format("found {}; expected `key: value` lines", Entry::of("", documents[0], {}).found()));
    } else {
      for (const auto& pair : documents[0]) read_pair(pair.first, pair.second);
    }
  }

  void read_pair(const YAML::Node& key, const YAML::Node& value) {
    if (!key.IsScalar()) {
      error(line_of(key), fmt::format("found {} as a key; expected a word", Entry::of("", key, {}).found()));
    } else if (never_closed(value)) {
      error(line_of(value),
            fmt::format("{}: found `{}`, whose quote does not end on its line; expected the closing quote",
                        key.Scalar(), trimmed(line(line_of(value)))));
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
    const auto earlier = std::find_if(file_.entries.begin(), file_.entries.end(),
                                      [&](const Entry& other) { return other.key == entry.key; });
    if (earlier == file_.entries.end()) {
      file_.entries.push_back(std::move(entry));
    } else if (earlier->same_value(entry)) {
      file_.warnings.push_back(
          fmt::format("{}: {}: found again with the same value as in line {}; one can go",
                      entry.origin.text(), entry.key, earlier->origin.line));
    } else {
      error(entry.origin.line, fmt::format("{}: found {}, but line {} says {}; expected the key once",
                                           entry.key, entry.found(), earlier->origin.line, earlier->found()));
    }
  }

  /// yaml-cpp lets a quoted text without its closing quote swallow the rest of the file.
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
                              trimmed(line(blamed)), fault.msg));
  }

  /// A line without its colon only shows in the line after it, and an open bracket at the end of the text:
  /// blame the written line that is at fault.
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
  std::vector<std::string> lines_;
  std::string source_;
};

}  // namespace

YamlFile YamlFile::parse(const std::string& text, const std::string& source) {
  return Reader(text, source).take();
}

}  // namespace adtrain
