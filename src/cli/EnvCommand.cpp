#include "base/StandardStreams.h"
#include "cli/Command.h"
#include "launch/LaunchContext.h"
#include "run/EnvironmentReport.h"

namespace adtrain {
namespace {

/// Several ranks would mix their reports, and two documents are no JSON. Where the launcher has set variables
/// that contradict each other, the report says so: all print it.
bool is_first_rank() {
  try {
    return LaunchContext::detect().is_root();
  } catch (const EnvironmentError&) {
    return true;
  }
}

}  // namespace

Command env_command() {
  Command command;
  command.name = "env";
  command.summary = "versions, devices, limits and launcher, for a bug report";
  command.examples =
      "examples:\n"
      "  adtrain env\n"
      "  mpirun -np 2 adtrain env --json\n";
  command.declare = [](cxxopts::OptionAdder& options) { options("json", "print JSON"); };
  command.run = [](const cxxopts::ParseResult& arguments) {
    if (!is_first_rank()) return ExitCode::kDone;
    const nlohmann::json report = environment_report();
    print_answer((arguments.count("json") > 0 ? report.dump(2) : environment_text(report)) + "\n");
    return ExitCode::kDone;
  };
  return command;
}

}  // namespace adtrain
