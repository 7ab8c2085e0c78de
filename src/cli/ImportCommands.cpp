#include <fmt/format.h>

#include "cli/Command.h"
#include "run/ImportHistories.h"

namespace adtrain {

Command import_histories_command() {
  Command command;
  command.name = "import histories";
  command.summary = "make a history file of Minari data sets";
  command.target = "Minari data sets: folders, or names under Minari's own folder";
  command.takes_several = true;
  command.examples =
      "Each argument is a task; commas join data sets that are histories of one task, which are cut to the\n"
      "shortest. Episodes are taken in the order of their numbers. Spaces are Discrete, MultiDiscrete and "
      "Box,\n"
      "the same in all data sets of a file. A stopped import continues with the same command.\n"
      "\n"
      "examples:\n"
      "  adtrain import histories ~/.minari/datasets/cartpole/ppo-v0 --out histories/cartpole.hdf5\n"
      "  adtrain import histories cartpole/short-v0 cartpole/long-v0 --out histories/cartpole.hdf5\n"
      "  adtrain import histories pole/seed0-v0,pole/seed1-v0 pole/heavy-v0 --out pole.hdf5 --json\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    options("out", "the file to write", cxxopts::value<std::string>(), "FILE.hdf5");
    options("overwrite", "replace the file");
    options("compression", "gzip's level, 1 to 9; 0: none", cxxopts::value<int>()->default_value("4"), "N");
    options("json", "print JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    ImportHistoriesRequest request;
    request.tasks = targets_of(arguments, "Minari data sets, such as ~/.minari/datasets/cartpole/ppo-v0");
    if (arguments.count("out") == 0)
      throw ConfigError("--out: missing; expected the file to write, such as --out histories/mine.hdf5");
    request.out = arguments["out"].as<std::string>();
    request.overwrite = arguments.count("overwrite") > 0;
    request.compression = arguments["compression"].as<int>();
    constexpr int kMost = 9;
    if (request.compression < 0 || request.compression > kMost)
      throw ConfigError(fmt::format("--compression: found {}; expected 0 to {}", request.compression, kMost));
    request.json = arguments.count("json") > 0;
    return import_histories(request);
  };
  return command;
}

}  // namespace adtrain
