#include "model/ParameterPatterns.h"

#include <algorithm>

#include <fmt/format.h>
#include <fnmatch.h>

#include "base/Error.h"
#include "base/Text.h"
#include "base/Words.h"

namespace adtrain {
namespace {

bool fits(const std::string& pattern, const std::string& name) {
  return std::ranges::any_of(beginnings_of(name), [&](const std::string& beginning) {
    return fnmatch(pattern.c_str(), beginning.c_str(), 0) == 0;
  });
}

/// Modules and parameters, each once, in order.
std::vector<std::string> all_beginnings(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  std::set<std::string> known;
  for (const std::string& name : names) {
    for (const std::string& beginning : beginnings_of(name)) {
      if (known.insert(beginning).second) all.push_back(beginning);
    }
  }
  return all;
}

std::string nothing_fits(const std::string& pattern, const std::vector<std::string>& names) {
  const std::string nearest = nearest_name(pattern, all_beginnings(names));
  std::string text = fmt::format("found '{}', which fits no parameter of this network", abridged(pattern));
  if (!nearest.empty()) return text + fmt::format("; did you mean {}?", nearest);
  constexpr size_t kMost = 600;
  return text + "; there are " + abridged(join(names, ", "), kMost);
}

}  // namespace

std::vector<std::string> beginnings_of(const std::string& name) {
  std::vector<std::string> beginnings;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    beginnings.push_back(name.substr(0, dot));
  beginnings.push_back(name);
  return beginnings;
}

std::set<std::string> names_that_fit(const std::string& patterns, const std::vector<std::string>& names,
                                     const std::string& place) {
  std::vector<std::string> faults;
  std::set<std::string> fitting;
  for (const std::string& pattern : between_commas(patterns)) {
    bool any = false;
    for (const std::string& name : names) {
      if (!fits(pattern, name)) continue;
      any = true;
      fitting.insert(name);
    }
    if (!any) faults.push_back(fmt::format("{}: {}", place, nothing_fits(pattern, names)));
  }
  if (!faults.empty()) throw ConfigError(join(faults, "\n"));
  return fitting;
}

}  // namespace adtrain
