#pragma once

#include <string>
#include <vector>

#include "config/Entry.h"

namespace adtrain {

/// The `key: value` lines of one YAML text, without what it includes. Its errors are collected, never thrown,
/// so that those of several files can be reported together.
struct YamlFile {
  std::vector<Entry> entries;       ///< each key once, in the order of the text
  std::vector<Entry> includes;      ///< one for each file under `include`, its name in `text`
  std::vector<std::string> errors;  ///< each begins with "source:line: "
  std::vector<std::string> warnings;

  /// `source` is the file's name for messages.
  static YamlFile parse(const std::string& text, const std::string& source);
};

}  // namespace adtrain
