#include "base/StandardStreams.h"
#include "cli/Command.h"
#include "run/EnvironmentReport.h"

namespace adtrain {

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
    const nlohmann::json report = environment_report();
    print_answer((arguments.count("json") > 0 ? report.dump(2) : environment_text(report)) + "\n");
    return ExitCode::kDone;
  };
  return command;
}

}  // namespace adtrain
