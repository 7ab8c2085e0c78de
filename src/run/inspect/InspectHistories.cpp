#include "run/inspect/InspectHistories.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/StandardStreams.h"
#include "base/Text.h"
#include "run/inspect/InspectedHistories.h"
#include "run/inspect/LearningProgress.h"
#include "telemetry/Chart.h"
#include "telemetry/Console.h"

namespace adtrain {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

Chart chart_of(const std::vector<InspectedHistories>& all) {
  Chart chart;
  chart.x_label = "share of learning (%)";
  chart.y_label = "mean return of episodes";
  for (const InspectedHistories& found : all) {
    Series series;
    series.name = fmt::format("{}: mean and standard deviation over {} tasks",
                              abridged(found.path.filename().string(), 60), found.tasks.size());
    std::vector<double> deviations;
    for (size_t part = 0; part < TaskProgress::kParts; ++part) {
      const MeanOverTasks value =
          MeanOverTasks::of(found.tasks, [part](const TaskProgress& task) { return task.curve[part]; });
      series.x.push_back(100 * (static_cast<double>(part) + 0.5) / TaskProgress::kParts);
      series.y.push_back(value.mean);
      deviations.push_back(value.deviation);
    }
    series.band = Band::around(series.y, deviations);
    chart.series.push_back(std::move(series));
  }
  return chart;
}

void check_outs(const std::vector<fs::path>& outs) {
  for (const fs::path& out : outs) {
    if (Chart::can_draw(out)) continue;
    throw ConfigError(fmt::format("--out: found '{}'; expected a name that ends in .svg, .pdf or .png",
                                  abridged(out.string())));
  }
}

}  // namespace

ExitCode inspect_histories(const InspectRequest& request) {
  check_outs(request.outs);
  Console console = Console::for_process(true, stderr);
  std::vector<InspectedHistories> all;
  for (const fs::path& path : request.paths)
    all.push_back(InspectedHistories::of(path, request.format, request.tasks, console));
  std::string written;
  for (const fs::path& out : request.outs) {
    try {
      chart_of(all).draw(out);
    } catch (const fs::filesystem_error& error) {
      throw EnvironmentError(fmt::format("{}; --out: choose a folder that can be written", error.what()));
    }
    written += fmt::format("written: {}\n", out.string());
  }
  if (request.json) {
    ordered_json document = {{"data_sets", ordered_json::array()}};
    for (const InspectedHistories& found : all) document["data_sets"].push_back(found.json());
    print_answer(document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    return ExitCode::kDone;
  }
  std::string text;
  for (const InspectedHistories& found : all) text += found.text();
  print_answer(text + written);
  return ExitCode::kDone;
}

}  // namespace adtrain
