#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/Section.h"
#include "framework/RankDevice.h"

namespace adtrain {

/// A run's name, its folder and its device.
struct RunOptions {
  std::optional<std::string> run_name;
  std::string runs_dir = "runs";
  DeviceChoice device = DeviceChoice::kAuto;
  std::optional<int64_t> cpu_threads;
  std::optional<std::string> plugins;  ///< absolute paths, with colons between them

  void declare(Section& section);
  void check(Findings& findings) const;
};

}  // namespace adtrain
