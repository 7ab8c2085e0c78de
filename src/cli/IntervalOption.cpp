#include "cli/IntervalOption.h"

#include <string>

#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {

void declare_interval(cxxopts::OptionAdder& options) {
  options("interval", "of a mean: se (one standard error to each side), bootstrap (95%) or none",
          cxxopts::value<std::string>()->default_value("se"), "NAME");
}

Interval interval_of(const cxxopts::ParseResult& arguments) {
  const auto& name = arguments["interval"].as<std::string>();
  if (name == "se") return Interval::kStandardError;
  if (name == "bootstrap") return Interval::kBootstrap;
  if (name == "none") return Interval::kNone;
  throw ConfigError(fmt::format("--interval: found '{}'; expected se, bootstrap or none", name));
}

}  // namespace adtrain
