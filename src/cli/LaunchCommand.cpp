#include "cli/Command.h"
#include "launcher/LocalLaunch.h"

namespace adtrain {

Command launch_command() {
  Command command;
  command.name = "launch";
  command.summary = "start several ranks on this machine, without mpirun or torchrun";
  command.target = "config.yaml|COMMAND …";
  command.passes_on = true;
  command.examples =
      "The rest of the command line, after the launcher's own options, is that of\n"
      "every rank: of adtrain, or of the program that --program names, which joins\n"
      "the ranks through adtrain's library.\n"
      "\n"
      "examples:\n"
      "  adtrain launch config.yaml --resume\n"
      "  adtrain launch --nproc 4 config.yaml --set lr=1e-3\n"
      "  adtrain launch --gpu-ids 0,2 config.yaml\n"
      "  adtrain launch --nproc 2 --logs my-logs evaluate runs/quickstart\n"
      "  adtrain launch --nproc 2 test\n"
      "  adtrain launch --nproc 2 --program build/train\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    options("nproc,nproc-per-node",
            "number of ranks; default: one for each of --gpu-ids or each visible GPU, or a single one",
            cxxopts::value<int64_t>(), "N");
    options("gpu-ids", "the ranks' GPUs, in the order of ranks: numbers or UUIDs; default: all visible ones",
            cxxopts::value<std::string>(), "ID,ID");
    options("grace", "time between asking the other ranks to end, when one has failed, and killing them",
            cxxopts::value<double>()->default_value("30"), "SECONDS");
    options("logs", "folder for the logs of all ranks but the first; default: a new one in runs/launch-logs",
            cxxopts::value<std::string>(), "FOLDER");
    options("program", "the program that every rank runs; default: adtrain", cxxopts::value<std::string>(),
            "FILE");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    LocalLaunchRequest request;
    if (arguments.count("nproc") > 0) request.ranks = arguments["nproc"].as<int64_t>();
    if (arguments.count("gpu-ids") > 0) request.gpu_ids = arguments["gpu-ids"].as<std::string>();
    request.grace_seconds = arguments["grace"].as<double>();
    if (arguments.count("logs") > 0) request.logs = arguments["logs"].as<std::string>();
    if (arguments.count("program") > 0) request.program = arguments["program"].as<std::string>();
    request.command_line = arguments.unmatched();
    return launch_locally(request);
  };
  return command;
}

}  // namespace adtrain
