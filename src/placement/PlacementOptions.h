#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/Section.h"
#include "placement/DeviceMap.h"
#include "placement/MemoryLimits.h"

namespace adtrain {

/// Over which devices `adtrain score` and `adtrain evaluate` spread a network.
struct PlacementOptions {
  std::optional<std::string> device_map;  ///< a mode, or a map as DeviceMap::given takes it
  std::optional<std::string> max_memory;  ///< as MemoryLimits::parse takes it

  void declare(Section& section);
  void check(Findings& findings) const;
  /// A sentence for each setting that is given but has no effect with the others.
  std::vector<std::string> notices() const;

  /// Of a device_map that names one; nothing for a map of the user. `auto` is `balanced`.
  std::optional<MapMode> mode() const;
  /// The limits of max_memory, where it is given.
  std::optional<MemoryLimits> limits() const;
};

}  // namespace adtrain
