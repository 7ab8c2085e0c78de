#include "run/ShownCollection.h"

#include <cmath>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Clock.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "collectives/StopRequest.h"

namespace adtrain {
namespace {

/// "mean return at the end of learning 16.20, oracle 17.25". `mean` is NaN where it is not known.
std::string return_text(double mean, const std::string& best) {
  if (std::isnan(mean)) return "the return at the end of learning is not known";
  return fmt::format("mean return at the end of learning {:.2f}{}", mean, best);
}

}  // namespace

ExitCode collect_shown(
    const ShownCollection& shown, const CollectRequest& request, Console& console,
    const std::function<bool(const CollectionListener& listener, ExistingHistories existing)>& run) {
  const std::string file = shown.file.string();
  if (std::filesystem::exists(file + ".partial")) {
    console.info(request.overwrite ? "continuing the collection that was stopped, if its settings were these"
                                   : "continuing the collection that was stopped");
  }
  if (std::filesystem::exists(shown.file))
    console.info("the file that is there is kept until the new one is complete");

  const Stopwatch watch;
  const StopRequest stop;
  double final_return = 0;
  bool complete = false;
  {
    Progress progress(console, "collecting", shown.tasks, "tasks");
    CollectionListener listener;
    listener.stop = [] { return StopRequest::signal_number() != 0; };
    listener.progress = [&](const CollectionProgress& state) {
      final_return = state.mean_final_return;
      const std::string best = shown.oracle ? fmt::format(" (oracle {:.2f})", *shown.oracle) : "";
      progress.update(state.tasks_done, return_text(state.mean_final_return, best));
    };
    listener.notice = [&console](const std::string& sentence) { console.warn(sentence); };
    listener.damage = [&console](const std::string& reason) {
      console.warn(reason + "; its task is learnt again");
    };
    complete = run(listener, request.overwrite ? ExistingHistories::kReplace : ExistingHistories::kRefuse);
  }
  if (!complete) {
    console.info("stopped; the finished tasks are kept and the same command continues");
    return ExitCode::kRequeue;
  }
  const double seconds = watch.seconds();
  if (request.json) {
    nlohmann::json summary = {
        {"file", file}, {"tasks", shown.tasks}, {"seconds", seconds}, {"mean_final_return", final_return}};
    if (shown.oracle) summary["oracle"] = *shown.oracle;
    print_answer(summary.dump(2) + "\n");
  } else {
    const std::string best = shown.oracle ? fmt::format(", oracle {:.2f}", *shown.oracle) : "";
    console.info(
        fmt::format("{} written in {}: {}", file, human_duration(seconds), return_text(final_return, best)));
  }
  return ExitCode::kDone;
}

}  // namespace adtrain
