#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <torch/headeronly/version.h>

#include "adtrain/environment.h"

namespace adtrain {

class Network;
struct NetworkSettings;

/// Takes what a shared object adds to the program `adtrain`:
///
///     ADTRAIN_PLUGIN(registry) {
///       registry.add_environment("corridor", [](const adtrain::EnvironmentSettings& settings) {
///         return std::make_shared<Corridor>(settings);
///       });
///     }
///
/// `adtrain --plugin libcorridor.so` loads it before the configuration is read, which may then say
/// `env: corridor`. A plug-in needs no library of adtrain's, only these headers and libtorch. Nothing that it
/// adds is ever removed, nor is it unloaded.
class PluginRegistry {
 public:
  using MakeEnvironments =
      std::function<std::shared_ptr<const EnvironmentFamily>(const EnvironmentSettings&)>;
  using MakeNetwork = std::function<std::shared_ptr<Network>(const NetworkSettings&)>;

  /// A task family for `env: NAME`. Names are compared without regard to case. A name that is taken is an
  /// error of the command line, which says by whom.
  virtual void add_environment(const std::string& name, MakeEnvironments make,
                               const EnvironmentDefaults& defaults = {}) = 0;
  /// A network for `model: NAME`: adtrain/network.h.
  virtual void add_network(const std::string& name, MakeNetwork make) = 0;

 protected:
  ~PluginRegistry() = default;
};

/// What a plug-in was built for: this interface's number and libtorch's release, which keeps no binary
/// interface between releases.
constexpr int64_t kPluginInterface = 1'000'000 + 1000 * TORCH_VERSION_MAJOR + TORCH_VERSION_MINOR;

}  // namespace adtrain

/// Begins the function that a plug-in is entered by; once in a shared object.
#define ADTRAIN_PLUGIN(registry)                                                \
  extern "C" [[gnu::visibility("default")]] int64_t adtrain_plugin_interface(); \
  extern "C" int64_t adtrain_plugin_interface() {                               \
    return adtrain::kPluginInterface;                                           \
  }                                                                             \
  extern "C" [[gnu::visibility("default")]] void adtrain_plugin(adtrain::PluginRegistry& registry)
