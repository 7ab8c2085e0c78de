#include "model/PluginNetworks.h"

#include <utility>

namespace adtrain {
namespace {

std::vector<PluginNetwork>& networks() {
  static std::vector<PluginNetwork> list;
  return list;
}

}  // namespace

void PluginNetworks::add(PluginNetwork network) {
  networks().push_back(std::move(network));
}

const std::vector<PluginNetwork>& PluginNetworks::all() {
  return networks();
}

}  // namespace adtrain
