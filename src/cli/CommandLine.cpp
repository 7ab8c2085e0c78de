#include "cli/CommandLine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "base/GpuLibraries.h"
#include "base/StandardStreams.h"
#include "base/Terminal.h"
#include "base/Text.h"
#include "cli/Command.h"
#include "launch/HeldTermination.h"
#include "launch/LaunchContext.h"
#include "run/EnvironmentReport.h"
#include "watchdog/ForeignError.h"
#include "watchdog/TorchrunErrorFile.h"

namespace adtrain {
namespace {

std::string general_help() {
  std::string text =
      "adtrain: distributed training for Algorithm Distillation, in-context reinforcement learning\n"
      "\n"
      "usage: adtrain config.yaml             train (the same as adtrain train config.yaml)\n"
      "       adtrain COMMAND … [options]\n"
      "\n"
      "commands:\n";
  for (const Command& command : commands())
    text += fmt::format("  {:<18} {}\n", command.name, command.summary);
  text +=
      "\n"
      "From nothing to a learning curve:\n"
      "  adtrain collect configs/quickstart.yaml\n"
      "  mpirun -np 2 adtrain configs/quickstart.yaml\n"
      "  adtrain evaluate runs/quickstart\n"
      "\n"
      "adtrain COMMAND --help explains one command, adtrain validate --explain every configuration key.\n";
  return text;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  return names;
}

const Command& find_command(const std::string& name) {
  for (const Command& command : commands()) {
    if (command.name == name) return command;
  }
  const std::string nearest = nearest_name(name, command_names());
  throw ConfigError(
      fmt::format("'{}' is neither a command nor a configuration file that exists; expected one of {}, or a "
                  ".yaml file{}",
                  name, join(command_names(), ", "),
                  nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

/// The command line that is passed on begins with the first argument that is neither an option nor an
/// option's value. A "--" in front of it makes cxxopts stop parsing there. Each of the command's own options
/// except --help has a value.
std::vector<const char*> closed_own_options(int argc, const char* const* argv) {
  std::vector<const char*> arguments(argv, argv + argc);
  size_t own = 1;
  while (own < arguments.size()) {
    const std::string argument = arguments[own];
    if (!argument.starts_with('-')) break;
    if (argument == "--") return arguments;
    const bool value_follows =
        argument != "--help" && argument != "-h" && argument.find('=') == std::string::npos;
    own += value_follows ? 2 : 1;
  }
  arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(std::min(own, arguments.size())), "--");
  return arguments;
}

/// Those that --help shows, without dashes.
std::vector<std::string> long_options(const cxxopts::Options& options) {
  std::vector<std::string> names;
  for (const cxxopts::HelpOptionDetails& option : options.group_help("").options)
    names.insert(names.end(), option.l.begin(), option.l.end());
  return names;
}

/// Names the option whose value the library could not read as a number: `why` has the value alone, in quotes.
ConfigError wrong_number(const Command& command, const std::vector<const char*>& words,
                         const std::string& why) {
  std::string option;  // in front of the word
  for (const std::string_view word : words) {
    const bool is_option = word.starts_with("-");
    const size_t equals = is_option ? word.find('=') : std::string_view::npos;
    const std::string_view value = equals == std::string_view::npos ? word : word.substr(equals + 1);
    if (equals != std::string_view::npos) option = word.substr(0, equals);
    if (!option.empty() && why.find(fmt::format("‘{}’", value)) != std::string::npos) {
      return ConfigError(fmt::format("{}: found {}; expected a number; see adtrain {} --help", option,
                                     abridged(std::string(value)), command.name));
    }
    option = is_option && equals == std::string_view::npos ? word : "";
  }
  return ConfigError(fmt::format("{}; see adtrain {} --help", why, command.name));
}

/// `why`: the library's own words, which suggest no names.
ConfigError wrong_options(const Command& command, const cxxopts::Options& options,
                          const std::vector<const char*>& words, const std::string& why) {
  const std::vector<std::string> known = long_options(options);
  for (const std::string_view word : words) {
    if (word == "--") break;
    if (!word.starts_with("--")) continue;
    const std::string name(word.substr(2, word.find('=') - 2));
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string nearest = nearest_name(name, known);
    return ConfigError(fmt::format(
        "found the option --{}, which adtrain {} does not have{}; see adtrain {} --help", abridged(name),
        command.name, nearest.empty() ? "" : fmt::format(": did you mean --{}?", nearest), command.name));
  }
  return ConfigError(fmt::format("{}; see adtrain {} --help", why, command.name));
}

ExitCode run_command(const Command& command, int argc, const char* const* argv) {
  cxxopts::Options options("adtrain " + command.name, command.summary);
  options.custom_help(command.passes_on ? "[options] " + command.target : "[options]")
      .positional_help(command.target);
  constexpr int kFewestColumns = 60, kMostColumns = 110;
  options.set_width(static_cast<size_t>(
      std::clamp(terminal_columns(STDOUT_FILENO).value_or(kMostColumns), kFewestColumns, kMostColumns)));
  cxxopts::OptionAdder adder = options.add_options();
  command.declare(adder);
  adder("h,help", "show this help");
  if (!command.target.empty() && !command.passes_on) {
    options.add_options("arguments")(
        "target", command.target,
        command.takes_several ? std::shared_ptr<cxxopts::Value>(cxxopts::value<std::vector<std::string>>())
                              : std::shared_ptr<cxxopts::Value>(cxxopts::value<std::string>()));
    options.parse_positional({"target"});
  }
  const std::vector<const char*> words =
      command.passes_on ? closed_own_options(argc, argv) : std::vector<const char*>(argv, argv + argc);
  cxxopts::ParseResult arguments;
  try {
    arguments = options.parse(static_cast<int>(words.size()), words.data());
  } catch (const cxxopts::exceptions::incorrect_argument_type& error) {
    throw wrong_number(command, words, error.what());
  } catch (const cxxopts::exceptions::exception& error) {
    throw wrong_options(command, options, words, error.what());
  }
  if (arguments.count("help") > 0) {
    print_answer(fmt::format("{}\n{}", options.help({""}), command.examples));
    return ExitCode::kDone;
  }
  if (!command.passes_on && !arguments.unmatched().empty()) {
    throw ConfigError(fmt::format("found the extra argument '{}'; adtrain {} takes {}",
                                  arguments.unmatched().front(), command.name,
                                  command.target.empty() ? "none" : "one"));
  }
  if (!command.as_ranks) held_termination::release();
  return command.run(arguments);
}

/// Whether some commands are called "group" and a second word.
bool is_group(const std::string& name) {
  return std::ranges::any_of(commands(),
                             [&](const Command& command) { return command.name.starts_with(name + " "); });
}

ExitCode dispatch(int argc, const char* const* argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty() || first == "--help" || first == "-h" || first == "help") {
    print_answer(general_help());
    return first.empty() ? ExitCode::kUsage : ExitCode::kDone;
  }
  if (first == "--version") {
    print_answer(version_text());
    return ExitCode::kDone;
  }
  const bool names_a_file = first.starts_with('-') || first.ends_with(".yaml") || first.ends_with(".yml") ||
                            std::filesystem::is_regular_file(first);
  if (names_a_file) return run_command(find_command("train"), argc, argv);
  if (is_group(first)) {
    if (argc == 2 || argv[2][0] == '-') {
      print_answer(general_help());
      return argc == 2 ? ExitCode::kUsage : ExitCode::kDone;
    }
    return run_command(find_command(first + " " + argv[2]), argc - 2, argv + 2);
  }
  return run_command(find_command(first), argc - 1, argv + 1);
}

/// All ranks read the same files, so every rank would report the same errors. The first rank reports them and
/// ends, and the launcher ends the others before they report anything, unless the mistake is theirs alone.
void let_the_first_rank_speak() {
  held_termination::release();
  constexpr auto kTimeToBeEnded = std::chrono::seconds(5);
  try {
    if (!LaunchContext::detect().is_root()) std::this_thread::sleep_for(kTimeToBeEnded);
  } catch (const EnvironmentError&) {
    // The first rank is not known: all report.
  }
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  secure_standard_streams();
  try {
    load_gpu_libraries();
    return static_cast<int>(dispatch(argc, argv));
  } catch (const ConfigError& error) {
    let_the_first_rank_speak();
    write_torchrun_error_file(error);
    return static_cast<int>(report_failure(error));
  } catch (const std::exception& error) {
    write_torchrun_error_file(error);
    return static_cast<int>(report_failure(as_error(error)));
  }
}

}  // namespace adtrain
