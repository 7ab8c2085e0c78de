#include "cli/Command.h"

#include <fmt/format.h>

namespace adtrain {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {collect_command(), train_command(),    evaluate_command(),
                                           launch_command(),  validate_command(), test_command(),
                                           env_command()};
  return all;
}

std::string target_of(const cxxopts::ParseResult& arguments, const std::string& what) {
  if (arguments.count("target") == 0) throw ConfigError(fmt::format("missing argument; expected {}", what));
  return arguments["target"].as<std::string>();
}

void declare_overrides(cxxopts::OptionAdder& options) {
  options("set", "override one key of the configuration; may be given several times",
          cxxopts::value<std::vector<std::string>>(), "key=value");
}

std::vector<std::string> overrides_of(const cxxopts::ParseResult& arguments) {
  if (arguments.count("set") == 0) return {};
  return arguments["set"].as<std::vector<std::string>>();
}

}  // namespace adtrain
