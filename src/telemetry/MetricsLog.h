#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "telemetry/AppendingFile.h"

namespace adtrain {

/// One JSON object a line, each with its "step"; written line by line so that it can be followed while it
/// grows. JSON has no non-finite numbers: such a figure becomes null, and "non_finite" holds its name and
/// value, as in {"step": 7, "loss": null, "non_finite": {"loss": "nan"}}. For one thread.
class MetricsLog {
 public:
  /// Opens or continues the file. `first_step` is the first step that will be recorded: lines at or after it,
  /// and an incomplete line of a killed run, are removed. Throws std::filesystem::filesystem_error where it
  /// cannot be written.
  MetricsLog(const std::filesystem::path& path, int64_t first_step);

  void record(const nlohmann::ordered_json& object);

  /// Why the last record was lost; empty if it was not.
  const std::string& failure() const { return file_.failure(); }

 private:
  AppendingFile file_;
};

}  // namespace adtrain
