#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/Error.h"
#include "run/figures/SeedStatistics.h"

namespace adtrain {

/// The command line of `adtrain sweep`.
struct SweepRequest {
  std::filesystem::path config;
  std::vector<std::string> assignments;  ///< as for sweep_points
  std::optional<int64_t> seeds;          ///< how many; none: the configuration's own
  std::optional<std::string> name;       ///< of the folder in runs_dir
  std::optional<int64_t> jobs;           ///< runs at once, at most
  int64_t ranks = 1;                     ///< of each run
  Interval interval = Interval::kStandardError;
  bool dry_run = false;    ///< only list the runs
  bool overwrite = false;  ///< begin all anew
  bool json = false;
};

/// Trains and evaluates every combination of settings, each run in a folder of its own in runs_dir/name, and
/// writes there
///
///     NAME/                    a run, for each combination
///     logs/NAME.log            what its processes have printed
///     sweep.json               each run's settings and status, anew at each change; at the end the table too
///     returns.csv              the table of in-context returns: see ReturnTable
///     returns.pdf, .png, .svg  their learning curves, seeds as one line
///
/// Runs that are done are left as they are, and others continued; to begin all anew, they are deleted before
/// the first of them begins. Returns kDone where all runs are done; kRequeue where it stopped on request;
/// else the exit code of the first run that failed. Throws ConfigError where a combination is no valid
/// configuration, a folder holds other runs or a run to be deleted is in use, DataError where histories are
/// missing; then nothing was started or deleted.
ExitCode sweep(const SweepRequest& request);

}  // namespace adtrain
