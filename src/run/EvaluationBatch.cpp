#include "run/EvaluationBatch.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/Clock.h"
#include "memory/BatchSizeSearch.h"
#include "memory/MemoryMeter.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

/// Contexts have their full length from then on, and memory grows no more.
int64_t episodes_until_full(const RunConfig& config) {
  const int64_t horizon = config.environment.episode_horizon();
  const int64_t context =
      config.model.compressed() ? 2 * config.model.compress_interval : config.model.n_transit;
  return std::min(config.evaluation.eval_episodes, (context + horizon - 1) / horizon + 1);
}

}  // namespace

int64_t find_evaluation_batch(const RunConfig& config, const InContextEvaluation& evaluation,
                              const Rollouts& rollouts, const Ranks& ranks, Console& console) {
  const int64_t world_size = ranks.communicator->world_size();
  const int64_t episodes = episodes_until_full(config);
  MemoryMeter meter(ranks.device.device, config.training.cpu_memory_limit(), ranks.context.local_world_size);
  BatchSizeOptions options;
  options.largest = (evaluation.trials() + world_size - 1) / world_size;
  options.safety_margin = config.training.batch_size_safety_margin;
  options.log = [&](const std::string& sentence) { console.info("  " + sentence); };
  console.info("finding eval_batch by trials of this evaluation's own rollouts");
  const auto roll_out = [&](int64_t batch) {
    Activity::of_this_process().begin("finding the batch size");
    std::vector<Trial> trials;
    for (int64_t number = 0; number < batch; ++number) trials.push_back(evaluation.trial(number));
    const RunEpisode run_episode = rollouts.begin(trials);
    double seconds = 0;
    for (int64_t episode = 0; episode < episodes; ++episode) {
      const Stopwatch watch;
      run_episode();
      seconds = watch.seconds();
    }
    meter.sample();
    return seconds;
  };
  BatchSizeSearch search(*ranks.communicator, meter, options);
  if (search.still_fits(options.largest, roll_out)) {  // as a rule, and at the price of one trial
    console.info(fmt::format("  Found optimal batch size: {}, an even share for each rank", options.largest));
    return options.largest;
  }
  return search.run(roll_out).batch;
}

}  // namespace adtrain
