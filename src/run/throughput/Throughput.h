#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// The command line of `adtrain throughput`.
struct ThroughputRequest {
  std::filesystem::path target;        ///< as ScoreRequest has it
  std::vector<std::string> histories;  ///< as there
  std::vector<std::string> overrides;
  double seconds = 5;  ///< that each row is measured for
  int64_t batch = 16;
  int64_t processes = 0;                        ///< 0: one for each GPU, two on the CPU
  std::vector<std::string> rows;                ///< empty: all
  std::optional<std::filesystem::path> output;  ///< none: `throughput` in the run's folder
  std::optional<std::string> python;            ///< measures others' programs, too, by this one
  bool overwrite = false;
  bool json = false;
};

/// Measures how fast the run's network scores histories, in several ways one after the other, and writes
///
///     throughput.json                 anew after each row
///     throughput.svg, .png            a bar for each row
///     logs/ROW.log                    what its processes have printed
///
/// A row that fails, or cannot be here, says why, and the others are measured. Returns kDone where a row was
/// measured; kRequeue where it stopped on request; else the exit code of the first row that failed. Throws
/// ConfigError, also where the folder holds a table that is not to be overwritten.
ExitCode throughput(const ThroughputRequest& request);

}  // namespace adtrain
