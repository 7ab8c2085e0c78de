#pragma once

#include <filesystem>

#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "run/TrainingInputs.h"
#include "telemetry/Console.h"

namespace adtrain {

/// Finds the batch sizes that the configuration leaves open (auto_batch_size) by steps of this very run on
/// these ranks, and puts them into the configuration: train_batch_size, or gradient_accumulation_steps where
/// the global batch is given, and test_batch_size. A decision for the same model, shapes, precision, devices
/// and number of ranks is taken from `runs_dir`/batch_sizes instead, unless batch_size_cache is off.
///
/// Writes table, JSON and picture of the trials to `report`.json, .svg and .png. Collective. Throws an
/// error of exit code 8 where not even one sequence fits. Returns whether the report is written: what a run
/// can do without is a warning if it fails.
bool find_batch_sizes(RunConfig& config, const Ranks& ranks, const TrainingInputs& inputs, Console& console,
                      const std::filesystem::path& report);

}  // namespace adtrain
