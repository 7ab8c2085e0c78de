#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "telemetry/profile/OperatorTable.h"
#include "telemetry/profile/StepParts.h"

namespace adtrain {

/// What a profile says of one rank.
struct RankProfile {
  int64_t rank = 0;
  std::string host, device;       ///< for people: "node3", "NVIDIA H200"
  bool on_gpu = false;            ///< whether the table and the parts are of a GPU
  std::vector<StepWindow> steps;  ///< in order; the work between them is left out
  double wall_seconds = 0;     ///< from the first step's start to the last one's end, by a clock of its own
  double between_seconds = 0;  ///< of these, between steps
  std::vector<OperatorRow> table;
  int64_t events = 0;    ///< in the trace
  int64_t left_out = 0;  ///< recorded, but left out of the trace, which has the longest

  /// The sum over all steps.
  StepParts parts() const;
  /// The mean of a step.
  double step_seconds() const;

  nlohmann::ordered_json to_json() const;
  /// The reverse. Throws nlohmann::json::exception where it is no such object.
  static RankProfile from(const nlohmann::ordered_json& json);
};

}  // namespace adtrain
