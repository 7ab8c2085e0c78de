#include <fmt/format.h>

#include "cli/Command.h"
#include "run/figures/Compare.h"

namespace adtrain {

Command compare_command() {
  Command command;
  command.name = "compare";
  command.summary = "what two runs differ in: configuration, results, and the first number that is not equal";
  command.target = "two run folders";
  command.takes_several = true;
  command.examples =
      "examples:\n"
      "  adtrain compare runs/a runs/b\n"
      "  adtrain compare runs/two-ranks runs/four-ranks --json\n"
      "  adtrain compare runs/a runs/repeated --expect-equal && echo equal in all bits\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    options("expect-equal",
            "end with 3 where their losses, checkpoints or returns are not equal in all bits");
    options("json", "print JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    const std::vector<std::string> runs = targets_of(arguments, "two folders of runs, such as runs/a runs/b");
    if (runs.size() != 2) {
      throw ConfigError(fmt::format("found {} argument{}; adtrain compare takes two folders of runs",
                                    runs.size(), runs.size() == 1 ? "" : "s"));
    }
    return compare({.first = runs[0],
                    .second = runs[1],
                    .expect_equal = arguments.count("expect-equal") > 0,
                    .json = arguments.count("json") > 0});
  };
  return command;
}

}  // namespace adtrain
