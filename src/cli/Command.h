#pragma once

#include <string>
#include <vector>

#include <cxxopts.hpp>

#include "base/Error.h"

namespace adtrain {

/// One subcommand: how it is described, which options it takes, and what it does with them.
struct Command {
  std::string name;            ///< one word, or two: a group and what it does, as "checkpoint list"
  std::string summary;         ///< one line, for the list of commands
  std::string target;          ///< what its one argument is called, "config.yaml"; empty where it takes none
  bool takes_several = false;  ///< its argument may be repeated: see targets_of
  bool passes_on = false;  ///< its argument begins another command line, which unmatched() holds completely
  bool as_ranks = false;   ///< each process of a launch is one of its ranks
  std::string examples;    ///< for --help: lines that can be typed as they are
  void (*declare)(cxxopts::OptionAdder& options);
  ExitCode (*run)(const cxxopts::ParseResult& arguments);
};

/// All of them, in the order of a run's life.
const std::vector<Command>& commands();

Command train_command();
Command collect_command();
Command find_batch_size_command();
Command estimate_command();
Command evaluate_command();
Command score_command();
Command merge_command();
Command throughput_command();
Command sweep_command();
Command plot_command();
Command compare_command();
Command checkpoint_list_command();
Command checkpoint_verify_command();
Command checkpoint_inspect_command();
Command checkpoint_export_command();
Command checkpoint_import_command();
Command inspect_histories_command();
Command import_histories_command();
Command launch_command();
Command validate_command();
Command test_command();
Command env_command();

/// The command's one argument. Throws ConfigError where it was not given.
std::string target_of(const cxxopts::ParseResult& arguments, const std::string& what);
/// The arguments of a command that takes several. Throws ConfigError where there is none.
std::vector<std::string> targets_of(const cxxopts::ParseResult& arguments, const std::string& what);
/// A run or one of its checkpoints, and histories behind it.
struct RunAndHistories {
  std::string run;
  std::vector<std::string> histories;
};
/// Of a command that takes several arguments. Throws ConfigError where there is none.
RunAndHistories run_and_histories_of(const cxxopts::ParseResult& arguments);
/// The options --set and --plugin, for commands that read a configuration.
void declare_overrides(cxxopts::OptionAdder& options);
/// An option's seconds. Throws ConfigError where it is none above 0, or more than a day.
double seconds_of(const cxxopts::ParseResult& arguments, const std::string& option);
/// The values of every --set, behind an assignment to `plugins` where there is --plugin.
std::vector<std::string> overrides_of(const cxxopts::ParseResult& arguments);

}  // namespace adtrain
