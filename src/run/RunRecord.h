#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "run/RunConfig.h"
#include "telemetry/TensorBoardWriter.h"

namespace adtrain {

/// How one start of a run came about.
struct RunStart {
  int64_t after_step = 0;
  std::string launcher;
  int64_t ranks = 1;
  std::string device;  ///< a GPU's name, or "CPU"
};

/// Puts the start into `run.json`: {"run", "configuration": {key: value, …} of this start, "starts":
/// [{"time", "after_step", "host", "launcher", "ranks", "device", "program": see program_identity()}, …]}.
/// `continues` keeps the starts that are there already; those of an unreadable file are lost. Throws
/// std::filesystem::filesystem_error where the file cannot be written.
void record_start(const RunFolder& folder, const RunConfig& config, const RunStart& start, bool continues);

/// The configuration for TensorBoard's HParams page, without keys that are null.
Hyperparameters hyperparameters_of(const RunConfig& config);

}  // namespace adtrain
