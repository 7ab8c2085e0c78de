#include <string>
#include <vector>

#include "cli/Command.h"
#include "cli/IntervalOption.h"
#include "run/sweep/Sweep.h"

namespace adtrain {

Command sweep_command() {
  Command command;
  command.name = "sweep";
  command.summary = "train and evaluate every combination of settings over seeds, several at once";
  command.target = "config.yaml";
  command.examples =
      "examples:\n"
      "  adtrain sweep config.yaml --set lr=1e-3,3e-3 --seeds 5\n"
      "  adtrain sweep config.yaml --set lr=1e-3,3e-3 --set n_transit=60,120 --seeds 3 --dry-run\n"
      "  adtrain sweep config.yaml --seeds 10 --nproc 2 --interval bootstrap\n"
      "\n"
      "Each run is a folder in runs/NAME. The same command, without --overwrite, continues a sweep that was\n"
      "interrupted.\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    options("set",
            "a key and its values, key=value,value,…; with one value it is of all runs. May be given "
            "several times",
            cxxopts::value<std::vector<std::string>>(), "key=values");
    options("plugin", "a shared object that adds task families or networks; may be given several times",
            cxxopts::value<std::vector<std::string>>(), "FILE.so");
    options("seeds", "number of seeds for each combination: the configuration's and those after it",
            cxxopts::value<int64_t>(), "N");
    options("name", "folder of the sweep in runs_dir; default: the run's name and -sweep",
            cxxopts::value<std::string>(), "NAME");
    options("nproc", "ranks of each run; default: one", cxxopts::value<int64_t>()->default_value("1"), "N");
    options("jobs", "runs at once, at most; default: as many as there are free GPUs, or cores",
            cxxopts::value<int64_t>(), "N");
    declare_interval(options);
    options("dry-run", "list the runs and what remains to be done, and start none");
    options("overwrite", "begin all runs anew");
    options("json", "print the table as JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    SweepRequest request;
    request.config = target_of(arguments, "a configuration file, such as configs/quickstart.yaml");
    request.assignments = overrides_of(arguments);
    if (arguments.count("seeds") > 0) request.seeds = arguments["seeds"].as<int64_t>();
    if (arguments.count("name") > 0) request.name = arguments["name"].as<std::string>();
    if (arguments.count("jobs") > 0) request.jobs = arguments["jobs"].as<int64_t>();
    request.ranks = arguments["nproc"].as<int64_t>();
    request.interval = interval_of(arguments);
    request.dry_run = arguments.count("dry-run") > 0;
    request.overwrite = arguments.count("overwrite") > 0;
    request.json = arguments.count("json") > 0;
    return sweep(request);
  };
  return command;
}

}  // namespace adtrain
