#include "run/Plugins.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

#include "adtrain/plugin.h"
#include "base/Error.h"
#include "base/Text.h"
#include "environments/EnvironmentOptions.h"
#include "environments/PluginFamilies.h"
#include "model/ModelOptions.h"
#include "model/PluginNetworks.h"

namespace adtrain {
namespace {

/// Takes what one plug-in adds.
class Registry final : public PluginRegistry {
 public:
  explicit Registry(std::string origin) : origin_(std::move(origin)) {}

  void add_environment(const std::string& name, MakeEnvironments make,
                       const EnvironmentDefaults& defaults) override {
    const std::string known = checked("task family", name, environment_names());
    PluginFamilies::add({known, origin_, std::move(make), defaults});
    is_empty_ = false;
  }
  void add_network(const std::string& name, MakeNetwork make) override {
    const std::string known = checked("network", name, model_names());
    PluginNetworks::add({known, origin_, std::move(make)});
    is_empty_ = false;
  }

  bool is_empty() const { return is_empty_; }

 private:
  /// The name in small letters.
  std::string checked(const char* what, const std::string& name,
                      const std::vector<std::string>& taken) const {
    const std::string small = to_lower(name);
    const auto fits = [](char letter) {
      return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') || letter == '_' ||
             letter == '-';
    };
    if (small.empty() || !std::ranges::all_of(small, fits)) {
      throw ConfigError(fmt::format(
          "plugins: {} adds the {} '{}'; expected a name of letters, digits, '_' and '-', which stands in "
          "file names",
          origin_, what, abridged(name)));
    }
    for (const std::string& other : taken) {
      if (to_lower(other) != small) continue;
      throw ConfigError(
          fmt::format("plugins: {} adds the {} '{}', a name that {} has taken; expected another than {}",
                      origin_, what, name, owner_of(small), join(taken, ", ")));
    }
    return small;
  }

  static std::string owner_of(const std::string& name) {
    if (const PluginFamily* family = PluginFamilies::find(name)) return family->origin;
    for (const PluginNetwork& network : PluginNetworks::all()) {
      if (network.name == name) return network.origin;
    }
    return "adtrain itself";
  }

  std::string origin_;
  bool is_empty_ = true;
};

std::string interface_text(int64_t number) {
  return fmt::format("interface {} and libtorch {}.{}", number / 1'000'000, number / 1000 % 1000,
                     number % 1000);
}

template <class Function>
Function* function_of(void* library, const std::string& file, const char* name) {
  if (void* found = dlsym(library, name)) return reinterpret_cast<Function*>(found);
  throw ConfigError(fmt::format(
      "plugins: {} has no function {}; expected a plug-in, of which one source says ADTRAIN_PLUGIN(registry)",
      file, name));
}

void load(const std::filesystem::path& path) {
  const std::string file = path.string();
  if (!std::filesystem::exists(path)) {
    throw ConfigError(fmt::format(
        "plugins: {} does not exist; expected a shared object (see docs/embedding.md, Plug-ins)", file));
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw ConfigError(
        fmt::format("plugins: {} cannot be loaded: {}; expected a shared object whose symbols are its own, "
                    "libtorch's and the standard library's",
                    file, dlerror()));
  }
  const int64_t built_for = function_of<int64_t()>(library, file, "adtrain_plugin_interface")();
  if (built_for != kPluginInterface) {
    throw ConfigError(fmt::format("plugins: {} was built for {}; expected {}: build it with this adtrain",
                                  file, interface_text(built_for), interface_text(kPluginInterface)));
  }
  const auto enter = function_of<void(PluginRegistry&)>(library, file, "adtrain_plugin");
  Registry registry(file);
  try {
    enter(registry);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw ConfigError(fmt::format("plugins: {} failed while it was loaded: {}", file, error.what()));
  }
  if (registry.is_empty()) {
    throw ConfigError(fmt::format(
        "plugins: {} adds nothing; expected add_environment or add_network in its ADTRAIN_PLUGIN", file));
  }
}

}  // namespace

void load_plugins(const std::vector<std::filesystem::path>& files) {
  static std::set<std::filesystem::path> loaded;
  for (const std::filesystem::path& file : files) {
    std::error_code absent;  // load() says so
    const std::filesystem::path real = std::filesystem::weakly_canonical(file, absent);
    if (loaded.contains(real)) continue;
    load(file);
    loaded.insert(real);
  }
}

}  // namespace adtrain
