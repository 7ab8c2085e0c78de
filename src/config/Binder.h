#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/Document.h"
#include "config/Section.h"

namespace adtrain {

/// Assigns a document's values to the members that sections describe.
///
///     Binder binder({&training, &data});
///     for (const std::string& notice : binder.bind(document, [&](Findings& findings) {
///            training_options.check(findings);
///          })) console.note(notice);
class Binder {
 public:
  using Check = std::function<void(Findings&)>;

  /// The sections must outlive the binder. Throws std::logic_error where two of them claim one name.
  explicit Binder(const std::vector<Section*>& sections);

  /// Assigns every value, then calls `check` for rules over several keys. Returns notices for the user:
  /// ignored keys and needless repetitions, each with its place. Throws one ConfigError that lists all
  /// errors, one per line: "file:line: key: found X; expected Y; did you mean Z?". The members are then
  /// partly assigned.
  std::vector<std::string> bind(const Document& document, const Check& check = nullptr) const;

 private:
  class Binding;
  std::map<std::string, Key*> keys_;            ///< by name and by alias
  std::map<std::string, std::string> ignored_;  ///< the reason by name
};

/// Every key with its current value, grouped under the sections' titles: a file that configures the same run
/// again.
std::string resolved_yaml(const std::vector<Section*>& sections);

}  // namespace adtrain
