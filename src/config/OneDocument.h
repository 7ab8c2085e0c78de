#pragma once

#include <optional>
#include <string>

#include <yaml-cpp/yaml.h>

namespace adtrain {

/// A YAML text that is to be one document.
struct OneDocument {
  YAML::Node root;
  /// Where more begins behind it: a second document, or what belongs to none.
  std::optional<YAML::Mark> more;

  /// Throws YAML::Exception where the text up to there is no YAML.
  static OneDocument parse(const std::string& text);
};

}  // namespace adtrain
