#include "cli/Command.h"
#include "run/Collect.h"

namespace adtrain {

Command collect_command() {
  Command command;
  command.name = "collect";
  command.summary = "run the source algorithm (PPO) on every task, or some, and write its learning histories";
  command.target = "config.yaml";
  command.examples =
      "examples:\n"
      "  adtrain collect configs/quickstart.yaml\n"
      "  adtrain collect configs/quickstart.yaml --set alg_seed=1 --set n_process=8\n"
      "  adtrain collect configs/quickstart.yaml --set tasks=0-39\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    declare_overrides(options);
    options("overwrite", "collect again where the history file already exists");
    options("json", "print the result as JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    CollectRequest request;
    request.config = target_of(arguments, "a configuration file, such as configs/quickstart.yaml");
    request.overrides = overrides_of(arguments);
    request.overwrite = arguments.count("overwrite") > 0;
    request.json = arguments.count("json") > 0;
    return collect(request);
  };
  return command;
}

}  // namespace adtrain
