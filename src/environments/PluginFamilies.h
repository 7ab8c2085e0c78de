#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "adtrain/environment.h"

namespace adtrain {

/// A task family that a plug-in has added.
struct PluginFamily {
  std::string name;    ///< in small letters
  std::string origin;  ///< the plug-in's file
  std::function<std::shared_ptr<const EnvironmentFamily>(const EnvironmentSettings&)> make;
  EnvironmentDefaults defaults;
};

/// Those of this process. Plug-ins are loaded by one thread, before anything asks.
class PluginFamilies {
 public:
  static void add(PluginFamily family);
  /// By its name in small letters; null where there is none.
  static const PluginFamily* find(const std::string& name);
  static std::vector<std::string> names();
};

}  // namespace adtrain
