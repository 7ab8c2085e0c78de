#include "cli/Command.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace adtrain {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {collect_command(),
                                           train_command(),
                                           evaluate_command(),
                                           score_command(),
                                           merge_command(),
                                           throughput_command(),
                                           sweep_command(),
                                           plot_command(),
                                           compare_command(),
                                           estimate_command(),
                                           find_batch_size_command(),
                                           checkpoint_list_command(),
                                           checkpoint_verify_command(),
                                           checkpoint_inspect_command(),
                                           checkpoint_export_command(),
                                           checkpoint_import_command(),
                                           inspect_histories_command(),
                                           import_histories_command(),
                                           launch_command(),
                                           validate_command(),
                                           test_command(),
                                           env_command()};
  return all;
}

namespace {

template <class Target>
Target given_target(const cxxopts::ParseResult& arguments, const std::string& what) {
  if (arguments.count("target") == 0) throw ConfigError(fmt::format("missing argument; expected {}", what));
  return arguments["target"].as<Target>();
}

}  // namespace

std::string target_of(const cxxopts::ParseResult& arguments, const std::string& what) {
  return given_target<std::string>(arguments, what);
}

std::vector<std::string> targets_of(const cxxopts::ParseResult& arguments, const std::string& what) {
  return given_target<std::vector<std::string>>(arguments, what);
}

RunAndHistories run_and_histories_of(const cxxopts::ParseResult& arguments) {
  const std::vector<std::string> given =
      targets_of(arguments,
                 "the folder of a run or of one of its checkpoints, and histories, such as "
                 "runs/quickstart histories/other.hdf5");
  return {given.front(), {given.begin() + 1, given.end()}};
}

double seconds_of(const cxxopts::ParseResult& arguments, const std::string& option) {
  constexpr double kDay = 86400;
  const auto seconds = arguments[option].as<double>();
  if (seconds > 0 && seconds <= kDay) return seconds;
  throw ConfigError(
      fmt::format("--{}: found {}; expected seconds above 0, at most {:.0f}", option, seconds, kDay));
}

void declare_overrides(cxxopts::OptionAdder& options) {
  options("set", "override one key of the configuration; may be given several times",
          cxxopts::value<std::vector<std::string>>(), "key=value");
  options("plugin", "a shared object that adds task families or networks; may be given several times",
          cxxopts::value<std::vector<std::string>>(), "FILE.so");
}

std::vector<std::string> overrides_of(const cxxopts::ParseResult& arguments) {
  std::vector<std::string> overrides;
  if (arguments.count("plugin") > 0) {
    const nlohmann::json files = arguments["plugin"].as<std::vector<std::string>>();
    overrides.push_back("plugins=" + files.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  if (arguments.count("set") > 0) {
    const auto assignments = arguments["set"].as<std::vector<std::string>>();
    overrides.insert(overrides.end(), assignments.begin(), assignments.end());
  }
  return overrides;
}

}  // namespace adtrain
