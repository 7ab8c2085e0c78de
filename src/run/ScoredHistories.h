#pragma once

#include <memory>
#include <string>
#include <vector>

#include "evaluation/scoring/ScoredWindows.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "telemetry/Console.h"

namespace adtrain {

/// Takes the paths of the command line for those of the configuration's own histories, where there are some.
/// Throws DataError where one does not exist, and ConfigError where a family's tasks are to be in several.
void use_histories(RunConfig& config, const std::vector<std::string>& paths);

/// For people: the paths that are scored.
std::string scored_paths(const RunConfig& config);

/// The windows of the histories that `config` names, of the tasks that score_tasks names, cut as in training
/// but for score_stride. Of a family at most train_n_stream streams of at most train_source_timesteps steps,
/// those that the file has. Which settings they were collected with does not matter, unless these make other
/// tasks. Collective: the ranks compare their histories. Throws DataError where the histories are missing or
/// damaged, hold no such tasks, or are of other spaces than the model's; ConfigError where score_tasks names
/// what they do not have. `run`: the folder of the trained run.
std::unique_ptr<ScoredWindows> scored_windows(const RunConfig& config, const RunFolder& run,
                                              const Ranks& ranks, Console& console);

/// What is asked of the tasks of histories, by score_tasks. `what`: the histories, for messages. Throws as
/// scored_windows does where it leaves none of `tasks`, and where it names one that is not among them.
std::vector<ScoredWindows::Task> scored_tasks(const RunConfig& config, std::vector<ScoredWindows::Task> tasks,
                                              const std::string& what);

}  // namespace adtrain
