#include "environments/PluginFamilies.h"

#include <deque>
#include <utility>

namespace adtrain {
namespace {

/// Families stay where they are when others are added.
std::deque<PluginFamily>& families() {
  static std::deque<PluginFamily> all;
  return all;
}

}  // namespace

void PluginFamilies::add(PluginFamily family) {
  families().push_back(std::move(family));
}

const PluginFamily* PluginFamilies::find(const std::string& name) {
  for (const PluginFamily& family : families()) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

std::vector<std::string> PluginFamilies::names() {
  std::vector<std::string> names;
  for (const PluginFamily& family : families()) names.push_back(family.name);
  return names;
}

}  // namespace adtrain
