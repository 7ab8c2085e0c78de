#include "cli/Command.h"
#include "run/Score.h"

namespace adtrain {

Command score_command() {
  Command command;
  command.name = "score";
  command.summary = "how probable a trained model holds the actions of histories, sample by sample";
  command.target = "run or checkpoint folder, and histories";
  command.takes_several = true;
  command.as_ranks = true;
  command.examples =
      "Histories are those of the run's configuration where none are named. Their tasks that the run has not "
      "trained on are scored: --set score_tasks=all for all.\n"
      "\n"
      "examples:\n"
      "  adtrain score runs/quickstart histories/other.hdf5 --set max_samples=1000\n"
      "  mpirun -np 4 adtrain score runs/quickstart histories/other.hdf5 --set batch_size=64\n"
      "  adtrain score runs/quickstart histories/other.hdf5 --shard 0/2 --set output_dir=scores\n"
      "  adtrain score runs/quickstart histories/other.hdf5 --shard 1/2 --set output_dir=scores\n"
      "  adtrain merge scores/part-* --output scores\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    declare_overrides(options);
    options("shard", "score only part I of N, counted from 0; adtrain merge puts the parts together",
            cxxopts::value<std::string>(), "I/N");
    options(
        "measure",
        "after a warm-up, score for so many seconds and write how fast that was (speed.json), and no scores",
        cxxopts::value<double>(), "SECONDS");
    options("overwrite", "replace scores that are there");
    options("json", "print the summary as JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    ScoreRequest request;
    const auto [run, histories] = run_and_histories_of(arguments);
    request.target = run;
    request.histories = histories;
    request.overrides = overrides_of(arguments);
    if (arguments.count("shard") > 0) request.shard = ScoreShard::parse(arguments["shard"].as<std::string>());
    if (arguments.count("measure") > 0) request.measured_seconds = seconds_of(arguments, "measure");
    request.overwrite = arguments.count("overwrite") > 0;
    request.json = arguments.count("json") > 0;
    return score(request);
  };
  return command;
}

Command merge_command() {
  Command command;
  command.name = "merge";
  command.summary = "put the parts of a scoring together, which adtrain score --shard has written";
  command.target = "folders of parts";
  command.takes_several = true;
  command.examples =
      "Refuses parts of different weights, histories or settings, samples that are missing, and samples that "
      "are there twice.\n"
      "\n"
      "examples:\n"
      "  adtrain merge scores/part-* --output scores\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    options("output", "the folder for the scores of all parts", cxxopts::value<std::string>(), "DIR");
    options("overwrite", "replace scores that are there");
    options("json", "print the summary as JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    MergeRequest request;
    for (const std::string& part :
         targets_of(arguments, "folders that adtrain score --shard has written, such as scores/part-*"))
      request.parts.emplace_back(part);
    if (arguments.count("output") == 0)
      throw ConfigError("missing --output; expected the folder for the scores of all parts");
    request.output = arguments["output"].as<std::string>();
    request.overwrite = arguments.count("overwrite") > 0;
    request.json = arguments.count("json") > 0;
    return merge(request);
  };
  return command;
}

}  // namespace adtrain
