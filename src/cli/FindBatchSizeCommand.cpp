#include "cli/Command.h"
#include "run/FindBatchSize.h"

namespace adtrain {

Command find_batch_size_command() {
  Command command;
  command.name = "find-batch-size";
  command.summary = "find the largest micro-batch that fits the GPUs' memory, by trials, and the fastest";
  command.target = "config.yaml";
  command.as_ranks = true;
  command.examples =
      "examples:\n"
      "  adtrain find-batch-size config.yaml\n"
      "  mpirun -np 4 adtrain find-batch-size config.yaml --set batch_size_prefer=throughput\n";
  command.declare = [](cxxopts::OptionAdder& options) { declare_overrides(options); };
  command.run = [](const cxxopts::ParseResult& arguments) {
    return find_batch_size_of_run(
        target_of(arguments, "a configuration file, such as configs/quickstart.yaml"),
        overrides_of(arguments));
  };
  return command;
}

}  // namespace adtrain
