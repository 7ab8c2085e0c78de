#pragma once

#include <optional>
#include <string>

#include <yaml-cpp/yaml.h>

namespace adtrain {

/// A YAML text that is to be one document.
struct OneDocument {
  YAML::Node root;
  /// Where further text begins after it: a second document, or text outside of any.
  std::optional<YAML::Mark> more;

  /// Throws YAML::Exception where the text up to there is not YAML.
  static OneDocument parse(const std::string& text);
};

/// Why a text is not YAML, and what may help.
std::string reason_of(const YAML::Exception& fault);

}  // namespace adtrain
