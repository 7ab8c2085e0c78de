#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "telemetry/AppendingFile.h"

namespace adtrain {

/// One JSON object a line, each with its "step"; written line by line so that it can be followed while it grows.
/// Numbers that are not finite become null, as JSON has none. For one thread.
class MetricsLog {
 public:
  /// Opens or continues the file. `first_step` is the first step that will be recorded: lines at or after it, and a half
  /// line that a killed run left, are dropped.
  MetricsLog(const std::filesystem::path& path, int64_t first_step);

  void record(const nlohmann::ordered_json& object);

 private:
  AppendingFile file_;
};

}  // namespace adtrain
