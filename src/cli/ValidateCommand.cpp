#include "cli/Command.h"
#include "run/Validate.h"

namespace adtrain {

Command validate_command() {
  Command command;
  command.name = "validate";
  command.summary = "check a configuration and show what it resolves to, or explain every key";
  command.target = "config.yaml";
  command.examples =
      "examples:\n"
      "  adtrain validate configs/quickstart.yaml\n"
      "  adtrain validate --explain\n"
      "  adtrain validate --explain --json\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    declare_overrides(options);
    options("explain", "print the reference of all keys: meaning, allowed values, unit, default");
    options("json", "print JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    const bool json = arguments.count("json") > 0;
    if (arguments.count("explain") > 0) return explain_configuration(json);
    return validate(target_of(arguments, "a configuration file, or --explain"), overrides_of(arguments),
                    json);
  };
  return command;
}

}  // namespace adtrain
