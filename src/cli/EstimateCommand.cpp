#include <sstream>

#include <fmt/format.h>

#include "cli/Command.h"
#include "run/Estimate.h"

namespace adtrain {
namespace {

/// "1,2,4" as numbers above 0. Throws ConfigError.
template <class Value>
std::vector<Value> numbers_of(const cxxopts::ParseResult& arguments, const char* option) {
  const auto text = arguments[option].as<std::string>();
  std::vector<Value> numbers;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    std::istringstream one(word);
    Value number{};
    if (!(one >> number) || !one.eof() || !(number > 0) || !(number < 1'000'000)) {
      throw ConfigError(
          fmt::format("--{}: found '{}'; expected numbers above 0 with commas between them", option, text));
    }
    numbers.push_back(number);
  }
  if (numbers.empty()) throw ConfigError(fmt::format("--{}: found nothing; expected a number", option));
  return numbers;
}

}  // namespace

Command estimate_command() {
  Command command;
  command.name = "estimate";
  command.summary = "what training, or scoring, takes of each GPU's memory, by arithmetic, and what fits";
  command.target = "config.yaml";
  command.takes_several = true;
  command.examples =
      "examples:\n"
      "  adtrain estimate config.yaml\n"
      "  adtrain estimate config.yaml --gpus 4,8 --memory 24,80\n"
      "  adtrain estimate config.yaml --set tf_n_layer=24 --set train_batch_size=64 --json\n"
      "  adtrain estimate config.yaml --set device_map=balanced --set max_memory='{0: 10GiB, 1: 10GiB}'\n"
      "  adtrain estimate configs/large/*.yaml --table --set score_batch=16\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    declare_overrides(options);
    options("gpus", "numbers of GPUs to compare; the parts are shown for the first",
            cxxopts::value<std::string>()->default_value("1,2,4,8"), "N,…");
    options("memory", "memory of a GPU, in GB (decimal), for which the largest batch is shown",
            cxxopts::value<std::string>()->default_value("40,80,141"), "GB,…");
    options(
        "table",
        "of scoring instead: GB of the fullest GPU, for each configuration and type of weights, as Markdown");
    options("json", "print JSON, in bytes");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    EstimateRequest request;
    for (const std::string& file :
         targets_of(arguments, "a configuration file, such as configs/quickstart.yaml"))
      request.configs.emplace_back(file);
    request.table = arguments.count("table") > 0;
    request.overrides = overrides_of(arguments);
    request.gpus = numbers_of<int64_t>(arguments, "gpus");
    request.memory_gb = numbers_of<double>(arguments, "memory");
    request.json = arguments.count("json") > 0;
    return estimate(request);
  };
  return command;
}

}  // namespace adtrain
