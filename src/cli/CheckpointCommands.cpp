#include "run/checkpoints/CheckpointCommands.h"

#include "cli/Command.h"

namespace adtrain {
namespace {

constexpr const char* kExpected = "the folder of a run or of one of its checkpoints, such as runs/quickstart";

bool wants_json(const cxxopts::ParseResult& arguments) {
  return arguments.count("json") > 0;
}

/// A command of which `--json` is the one option.
Command reading_command(std::string verb, std::string summary, std::string examples,
                        ExitCode (*run)(const cxxopts::ParseResult& arguments)) {
  Command command;
  command.name = "checkpoint " + verb;
  command.summary = std::move(summary);
  command.target = "run folder or checkpoint folder";
  command.examples = std::move(examples);
  command.declare = [](cxxopts::OptionAdder& options) { options("json", "print JSON"); };
  command.run = run;
  return command;
}

}  // namespace

Command checkpoint_list_command() {
  return reading_command("list", "the checkpoints of a run: steps, ages, sizes, configurations",
                         "examples:\n"
                         "  adtrain checkpoint list runs/quickstart\n"
                         "  adtrain checkpoint list runs/quickstart --json\n",
                         [](const cxxopts::ParseResult& arguments) {
                           return list_checkpoints(target_of(arguments, kExpected), wants_json(arguments));
                         });
}

Command checkpoint_verify_command() {
  return reading_command("verify", "compare checkpoints with their checksums; every value must be finite",
                         "Ends with 0 where all are usable, else with 5.\n"
                         "\n"
                         "examples:\n"
                         "  adtrain checkpoint verify runs/quickstart\n"
                         "  adtrain checkpoint verify runs/quickstart/checkpoints/step-2000 --json\n",
                         [](const cxxopts::ParseResult& arguments) {
                           return verify_checkpoints(target_of(arguments, kExpected), wants_json(arguments));
                         });
}

Command checkpoint_inspect_command() {
  return reading_command("inspect", "what a checkpoint holds: step, configuration, every tensor",
                         "Of a run it is the newest checkpoint that verifies.\n"
                         "\n"
                         "examples:\n"
                         "  adtrain checkpoint inspect runs/quickstart\n"
                         "  adtrain checkpoint inspect runs/quickstart/checkpoints/step-2000 --json\n",
                         [](const cxxopts::ParseResult& arguments) {
                           return inspect_checkpoint(target_of(arguments, kExpected), wants_json(arguments));
                         });
}

Command checkpoint_export_command() {
  Command command;
  command.name = "checkpoint export";
  command.summary = "write a checkpoint as a .pt file for Python's torch.load, or quantised";
  command.target = "run folder or checkpoint folder";
  command.examples =
      "Of a run it is the newest checkpoint that verifies. The file holds step, model (a state_dict),\n"
      "optimizer (moments by name) and config.\n"
      "\n"
      "examples:\n"
      "  adtrain checkpoint export runs/quickstart --out quickstart.pt\n"
      "  adtrain checkpoint export runs/quickstart/checkpoints/step-2000 --out step-2000.pt\n"
      "\n"
      "With load_in_4bit or load_in_8bit the weights are quantised: as a file with bitsandbytes' names, or "
      "as\n"
      "a run that adtrain score and adtrain evaluate take.\n"
      "  adtrain checkpoint export runs/large --out large.safetensors --set load_in_4bit=true\n"
      "  adtrain checkpoint export runs/large --out runs/large-int8 --set load_in_8bit=true\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    options("out",
            "the file to write; an older one is replaced. Of quantised weights, also a new run's folder",
            cxxopts::value<std::string>()->default_value(""), "FILE.pt|FILE.safetensors|RUN");
    options("set", "a key of quantised weights; may be given several times",
            cxxopts::value<std::vector<std::string>>(), "key=value");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    const std::string target = target_of(arguments, kExpected);
    const std::string out = arguments["out"].as<std::string>();
    if (out.empty())
      throw ConfigError("missing --out; expected the file to write, such as --out quickstart.pt");
    std::vector<std::string> overrides;
    if (arguments.count("set") > 0) overrides = arguments["set"].as<std::vector<std::string>>();
    return export_checkpoint(target, out, overrides);
  };
  return command;
}

Command checkpoint_import_command() {
  Command command;
  command.name = "checkpoint import";
  command.summary = "make a run of a .pt checkpoint of the Python projects, or of weights in safetensors";
  command.target = "FILE.pt|FILE.safetensors";
  command.examples =
      "The run continues with --resume, and is evaluated like any other; one of quantised weights is for "
      "adtrain score and adtrain evaluate alone.\n"
      "\n"
      "examples:\n"
      "  adtrain checkpoint import ckpt-50000.pt\n"
      "  adtrain checkpoint import ckpt-50000.pt --out runs/imported --config config.yaml\n"
      "  adtrain checkpoint import large-nf4.safetensors --config runs/large/config.yaml\n"
      "  adtrain checkpoint import compressed.pt --markers beside --set token_type_weight=0.1\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    options("out", "folder of the new run; default: runs/FILE",
            cxxopts::value<std::string>()->default_value(""), "RUN");
    options("config", "configuration to take instead of the one in the file",
            cxxopts::value<std::string>()->default_value(""), "FILE.yaml");
    options("markers",
            "compressed context: whether the file's markers stand beside the transitions or replace them",
            cxxopts::value<std::string>()->default_value(""), "beside|replace");
    options("query-type",
            "token type that the source added to the query in training; default: 0 with compressed context "
            "in a Python project's .pt, else none",
            cxxopts::value<std::string>()->default_value(""), "0|none");
    options("set", "override one key of the configuration; may be given several times",
            cxxopts::value<std::vector<std::string>>(), "key=value");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    ImportRequest request;
    request.file = target_of(arguments, "a .pt file of torch.save, or .safetensors");
    request.out = arguments["out"].as<std::string>();
    request.config = arguments["config"].as<std::string>();
    request.markers = arguments["markers"].as<std::string>();
    request.query_type = arguments["query-type"].as<std::string>();
    if (arguments.count("set") > 0) request.overrides = arguments["set"].as<std::vector<std::string>>();
    return import_checkpoint(request);
  };
  return command;
}

}  // namespace adtrain
