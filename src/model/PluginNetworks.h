#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace adtrain {

class Network;
struct NetworkSettings;

/// A network that a plug-in has added.
struct PluginNetwork {
  std::string name;    ///< in small letters
  std::string origin;  ///< the plug-in's file
  std::function<std::shared_ptr<Network>(const NetworkSettings&)> make;
};

/// Those of this process, in the order of ModelKind::kPlugin and what follows it. Plug-ins are loaded by one
/// thread, before anything asks.
class PluginNetworks {
 public:
  static void add(PluginNetwork network);
  static const std::vector<PluginNetwork>& all();
};

}  // namespace adtrain
