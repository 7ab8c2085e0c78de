#include "cli/Command.h"
#include "selftest/SelfTest.h"

namespace adtrain {

Command test_command() {
  Command command;
  command.name = "test";
  command.summary = "test the launcher: where ranks run, collectives and their speed, a training step";
  command.as_ranks = true;
  command.examples =
      "examples:\n"
      "  mpirun -np 4 adtrain test\n"
      "  torchrun --standalone --no-python --nproc-per-node 4 adtrain test --set device=cuda\n"
      "  srun --nodes 2 --ntasks-per-node 4 adtrain test --json\n"
      "  adtrain launch --nproc 2 test --largest 1\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    declare_overrides(options);
    options("largest", "test all-reduces up to this many MiB; default: 256 on GPUs, 32 on the CPU",
            cxxopts::value<int64_t>(), "MIB");
    options("json", "print the figures and the verdict as JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    SelfTestRequest request;
    request.overrides = overrides_of(arguments);
    if (arguments.count("largest") > 0) request.largest_mebibytes = arguments["largest"].as<int64_t>();
    request.json = arguments.count("json") > 0;
    return self_test(request);
  };
  return command;
}

}  // namespace adtrain
