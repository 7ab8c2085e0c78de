#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace YAML {
class Node;
}

namespace adtrain {

/// Where a key was written.
struct Origin {
  std::string source;  ///< the file as the user would name it, or "command line"
  int64_t line = 0;    ///< from 1; 0 on the command line

  /// "configs/run.yaml:12" or "command line".
  std::string text() const;
};

/// One `key: value` as written, before the key is interpreted.
struct Entry {
  enum class Kind { kNull, kScalar, kList, kMap };

  std::string key;
  Kind kind = Kind::kNull;
  std::string text;  ///< a scalar's characters without quotes; a list or map as YAML on one line
  Origin origin;
  std::shared_ptr<const YAML::Node> map = nullptr;  ///< of a map: its pairs, which know their lines

  static Entry of(std::string key, const YAML::Node& value, Origin origin);
  /// "null", "'512'", "the list [1, 2]" or "the nested map {a: 1}", for messages.
  std::string found() const;
  bool same_value(const Entry& other) const;
};

}  // namespace adtrain
