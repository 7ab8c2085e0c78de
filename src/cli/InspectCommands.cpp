#include <fmt/format.h>

#include "base/Text.h"
#include "cli/Command.h"
#include "run/inspect/InspectHistories.h"

namespace adtrain {
namespace {

constexpr const char* kRecognised = "auto";

std::optional<HistoryFormat> format_of(const std::string& name) {
  if (name == kRecognised) return std::nullopt;
  std::vector<std::string> names = {kRecognised};
  for (const HistoryFormat format : history_formats()) {
    if (name == name_of(format)) return format;
    names.emplace_back(name_of(format));
  }
  const std::string nearest = nearest_name(name, names);
  throw ConfigError(fmt::format("--format: found '{}'; expected one of {}{}", abridged(name),
                                join(names, ", "),
                                nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

}  // namespace

Command inspect_histories_command() {
  Command command;
  command.name = "inspect histories";
  command.summary = "what data sets of learning histories hold, and how their tasks learnt";
  command.target = "history files or folders";
  command.takes_several = true;
  command.examples =
      "Formats are recognised: adtrain's own, XLand-MiniGrid's and Vintix's, whose lists of tasks are read, "
      "too. Nothing is converted.\n"
      "\n"
      "examples:\n"
      "  adtrain inspect histories histories/history_darkroom_PPO_alg-seed0.hdf5\n"
      "  adtrain inspect histories xland-trivial-20b.hdf5 --tasks 20 --out learning.svg\n"
      "  adtrain inspect histories mujoco_config.yaml --traj-dir VintixDataset\n"
      "  adtrain inspect histories a.hdf5 b.hdf5 --tasks 0 --json\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    options("tasks", "read so many tasks of each data set, evenly spread; 0: all",
            cxxopts::value<int64_t>()->default_value("100"), "N");
    options("traj-dir", "the folder to which paths in Vintix's lists of tasks are relative",
            cxxopts::value<std::string>()->default_value(""), "DIR");
    options("format", "auto, or the format to expect: adtrain, xland or vintix",
            cxxopts::value<std::string>()->default_value(kRecognised), "NAME");
    options(
        "out",
        "draw the mean return over the course of learning: .svg, .pdf or .png; may be given several times",
        cxxopts::value<std::vector<std::string>>(), "FILE");
    options("json", "print JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    InspectRequest request;
    for (const std::string& path :
         targets_of(arguments, "history files or folders, such as histories/*.hdf5"))
      request.paths.emplace_back(path);
    request.list_folder = arguments["traj-dir"].as<std::string>();
    request.format = format_of(arguments["format"].as<std::string>());
    request.tasks = arguments["tasks"].as<int64_t>();
    if (request.tasks < 0)
      throw ConfigError(fmt::format("--tasks: found {}; expected 0 (all) or more", request.tasks));
    if (arguments.count("out") > 0) {
      for (const std::string& out : arguments["out"].as<std::vector<std::string>>())
        request.outs.emplace_back(out);
    }
    request.json = arguments.count("json") > 0;
    return inspect_histories(request);
  };
  return command;
}

}  // namespace adtrain
