#include <sstream>

#include <fmt/format.h>

#include "cli/Command.h"
#include "cli/IntervalOption.h"
#include "run/ConfigChanges.h"
#include "run/figures/Plot.h"

namespace adtrain {
namespace {

/// Throws ConfigError where the option's number is not in [low, high].
double number_of(const cxxopts::ParseResult& arguments, const char* option, double low, double high) {
  const double number = arguments[option].as<double>();
  if (number >= low && number <= high) return number;
  throw ConfigError(
      fmt::format("--{}: found {}; expected a number from {} to {}", option, number, low, high));
}

std::optional<std::string> text_of(const cxxopts::ParseResult& arguments, const char* option) {
  if (arguments.count(option) == 0) return std::nullopt;
  return arguments[option].as<std::string>();
}

/// "lr,seed" as names of keys. Throws ConfigError where one is no key.
std::vector<std::string> keys_of(const std::string& text) {
  std::vector<std::string> keys;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) keys.push_back(word);
  check_key_names(keys, "--over");
  return keys;
}

}  // namespace

Command plot_command() {
  Command command;
  command.name = "plot";
  command.summary = "draw several runs in one picture, repeated seeds as one line with an interval";
  command.target = "run folders";
  command.takes_several = true;
  command.examples =
      "examples:\n"
      "  adtrain plot runs/lr-* --out figure.pdf\n"
      "  adtrain plot runs/lr-* --what test_loss --smooth 0.6 --interval bootstrap --out loss.svg\n"
      "  adtrain plot runs/a runs/b --each --width 3.3 --height 2.4 --out figure.png --out figure.csv\n"
      "\n"
      "Runs whose configurations differ only in seeds, names and the like are one line: their mean.\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    options("out",
            "where to draw: .pdf, .svg or .png, or .csv or .json for the numbers; may be given several times",
            cxxopts::value<std::vector<std::string>>(), "FILE");
    options("what", "returns (of adtrain evaluate), or a figure of metrics.jsonl: loss, test_loss, …",
            cxxopts::value<std::string>()->default_value(FigureContent::kReturns), "NAME");
    options("evaluation", "returns: which evaluation of each run, by its folder's name",
            cxxopts::value<std::string>()->default_value(kLatestEvaluation), "NAME");
    declare_interval(options);
    options("over", "keys whose values are averaged over as seeds are, such as env_split_seed",
            cxxopts::value<std::string>(), "KEY,…");
    options("each", "draw each run as a line of its own");
    options("smooth", "weight of the neighbouring points in each run's curve, from 0 to below 1",
            cxxopts::value<double>()->default_value("0"), "WEIGHT");
    options("title", "title above the picture", cxxopts::value<std::string>()->default_value(""), "TEXT");
    options("x-label", "label of the horizontal axis", cxxopts::value<std::string>(), "TEXT");
    options("y-label", "label of the vertical axis", cxxopts::value<std::string>(), "TEXT");
    options("log-y", "a logarithmic vertical axis");
    options("width", "width in inches", cxxopts::value<double>()->default_value("5.5"), "INCHES");
    options("height", "height in inches", cxxopts::value<double>()->default_value("3.4"), "INCHES");
    options("json", "print the numbers of the picture as JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    PlotRequest request;
    for (const std::string& run : targets_of(arguments, "folders of runs, such as runs/quickstart"))
      request.runs.emplace_back(run);
    if (arguments.count("out") > 0) {
      for (const std::string& out : arguments["out"].as<std::vector<std::string>>())
        request.outs.emplace_back(out);
    }
    request.content.what = arguments["what"].as<std::string>();
    request.content.evaluation = arguments["evaluation"].as<std::string>();
    request.content.interval = interval_of(arguments);
    request.content.over = keys_of(text_of(arguments, "over").value_or(""));
    request.content.each = arguments.count("each") > 0;
    request.content.smooth = number_of(arguments, "smooth", 0, 0.999);
    request.style.title = arguments["title"].as<std::string>();
    request.style.x_label = text_of(arguments, "x-label");
    request.style.y_label = text_of(arguments, "y-label");
    request.style.log_y = arguments.count("log-y") > 0;
    request.style.width_inches = number_of(arguments, "width", 2, 40);
    request.style.height_inches = number_of(arguments, "height", 1.5, 40);
    request.json = arguments.count("json") > 0;
    return plot(request);
  };
  return command;
}

}  // namespace adtrain
