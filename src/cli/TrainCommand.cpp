#include <sstream>
#include <string>
#include <vector>

#include "cli/Command.h"
#include "run/Train.h"

namespace adtrain {
namespace {

std::vector<std::string> by_commas(const std::vector<std::string>& lists) {
  std::vector<std::string> words;
  for (const std::string& list : lists) {
    std::istringstream rest(list);
    for (std::string word; std::getline(rest, word, ',');) words.push_back(word);
  }
  return words;
}

}  // namespace

Command train_command() {
  Command command;
  command.name = "train";
  command.summary = "train a model on collected histories, on one or many ranks";
  command.target = "config.yaml";
  command.as_ranks = true;
  command.examples =
      "examples:\n"
      "  adtrain config.yaml\n"
      "  mpirun -np 4 adtrain config.yaml --set lr=1e-3 --set run_name=faster\n"
      "  torchrun --standalone --no-python --nproc-per-node 4 adtrain config.yaml --resume\n"
      "  adtrain train config.yaml --json > result.json\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    declare_overrides(options);
    options("resume", "continue the run from its newest checkpoint that verifies");
    options("allow-changes",
            "with --resume: keys that may have another value although that changes what the run means",
            cxxopts::value<std::vector<std::string>>(), "key,key");
    options(
        "overwrite",
        "start the run anew where its folder holds one already; its checkpoints, metrics, evaluations and "
        "scores are deleted");
    options("stop-after", "stop after this optimizer step, with a checkpoint, as if asked to",
            cxxopts::value<int64_t>(), "STEP");
    options("json", "print how it ended as one JSON document on standard output; all else on standard error");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    TrainRequest request;
    request.config = target_of(arguments, "a configuration file, such as configs/quickstart.yaml");
    request.overrides = overrides_of(arguments);
    request.resume = arguments.count("resume") > 0;
    request.json = arguments.count("json") > 0;
    request.overwrite = arguments.count("overwrite") > 0;
    if (arguments.count("allow-changes") > 0) {
      request.allowed_changes = by_commas(arguments["allow-changes"].as<std::vector<std::string>>());
    }
    if (arguments.count("stop-after") > 0) request.stop_after = arguments["stop-after"].as<int64_t>();
    return train(request);
  };
  return command;
}

}  // namespace adtrain
