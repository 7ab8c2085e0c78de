#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/Words.h"
#include "cli/Command.h"
#include "run/throughput/Throughput.h"
#include "run/throughput/ThroughputRows.h"

namespace adtrain {
namespace {

constexpr double kLeastSeconds = 0.1;  ///< less are over before a batch begins

}  // namespace

Command throughput_command() {
  Command command;
  command.name = "throughput";
  command.summary =
      "how fast a model scores: one at a time, in batches, on several GPUs, in 16, 8 and 4 bits";
  command.target = "run or checkpoint folder, and histories";
  command.takes_several = true;
  command.examples =
      "Each row of the table is a scoring of its own, as adtrain score would run it: sequential, batched, "
      "auto (score_batch: auto), bf16, ranks (adtrain launch), processes (--shard), device_map, int8, int4. "
      "Where --python or --rows asks for them, rows of a network of the same size in PyTorch: pytorch, "
      "accelerate, bitsandbytes_8bit, bitsandbytes_4bit.\n"
      "\n"
      "examples:\n"
      "  adtrain throughput runs/large histories/other.hdf5\n"
      "  adtrain throughput runs/large --seconds 20 --batch 64 --set torch_dtype=bf16\n"
      "  adtrain throughput runs/large --rows sequential,ranks,device_map --nproc 4 --json\n"
      "  adtrain throughput runs/large --python python3 --set torch_dtype=bf16\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    declare_overrides(options);
    options("seconds", "how long each row is measured, after a warm-up",
            cxxopts::value<double>()->default_value("5"), "N");
    options("batch", "windows of a batch in the row of fixed batches",
            cxxopts::value<int64_t>()->default_value("16"), "N");
    options("nproc", "ranks, processes and devices of a map; default: one for each GPU, two on a CPU",
            cxxopts::value<int64_t>(), "N");
    options("python", "measure PyTorch's rows, too, by this Python; default where --rows names one: python3",
            cxxopts::value<std::string>(), "PROGRAM");
    options("rows", "the rows to measure; default: all but PyTorch's", cxxopts::value<std::string>(),
            "NAME,…");
    options("output", "the folder for table and picture; default: throughput in the run's folder",
            cxxopts::value<std::string>(), "DIR");
    options("overwrite", "replace a table that is there");
    options("json", "print the table as JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    ThroughputRequest request;
    const auto [run, histories] = run_and_histories_of(arguments);
    request.target = run;
    request.histories = histories;
    request.overrides = overrides_of(arguments);
    request.seconds = seconds_of(arguments, "seconds");
    if (request.seconds < kLeastSeconds)
      throw ConfigError(
          fmt::format("--seconds: found {:g}; expected {:g} or more", request.seconds, kLeastSeconds));
    request.batch = arguments["batch"].as<int64_t>();
    constexpr int64_t kMostWindows = 1'000'000;  // as score_batch
    if (request.batch < 1 || request.batch > kMostWindows)
      throw ConfigError("--batch: found " + std::to_string(request.batch) +
                        "; expected 1 to 1000000 windows");
    if (arguments.count("nproc") > 0) {
      request.processes = arguments["nproc"].as<int64_t>();
      if (request.processes < 1)
        throw ConfigError("--nproc: found " + std::to_string(request.processes) + "; expected 1 or more");
    }
    if (arguments.count("rows") > 0) request.rows = between_commas(arguments["rows"].as<std::string>());
    if (arguments.count("python") > 0) request.python = arguments["python"].as<std::string>();
    if (arguments.count("output") > 0) request.output = arguments["output"].as<std::string>();
    request.overwrite = arguments.count("overwrite") > 0;
    request.json = arguments.count("json") > 0;
    return throughput(request);
  };
  return command;
}

}  // namespace adtrain
