#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "run/RunConfig.h"
#include "run/RunFolder.h"
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
/// `continues` keeps the starts that are there already; those of an unreadable file are lost. A run that
/// begins with other weights has "init_from" too, InitialWeights' record, which is given at its first start
/// and kept. Throws std::filesystem::filesystem_error where the file cannot be written.
void record_start(const RunFolder& folder, const RunConfig& config, const RunStart& start, bool continues,
                  const nlohmann::ordered_json& init_from = nullptr);

/// The first of the "starts", which tells the run from one that is begun in its folder later: a run that is
/// continued keeps it. Null where none is recorded.
nlohmann::ordered_json first_start(const RunFolder& folder);

/// The configuration for TensorBoard's HParams page, without keys that are null.
Hyperparameters hyperparameters_of(const RunConfig& config);

}  // namespace adtrain
