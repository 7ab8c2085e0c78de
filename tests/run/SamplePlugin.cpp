#include "adtrain/environment.h"
#include "adtrain/plugin.h"

namespace adtrain {
namespace {

/// Stands still.
class SampleEnvironment final : public Environment {
 public:
  Observation reset() override { return {0, 0}; }
  Outcome step(int32_t /*action*/) override { return {{0, 0}, 0}; }
};

class SampleFamily final : public EnvironmentFamily {
 public:
  int64_t task_count() const override { return 10; }
  std::unique_ptr<Environment> make(int64_t /*task*/) const override {
    return std::make_unique<SampleEnvironment>();
  }
  double best_return(int64_t /*task*/) const override { return 0; }
};

}  // namespace
}  // namespace adtrain

/// What Plugins_test names in configurations, and never trains.
ADTRAIN_PLUGIN(registry) {
  registry.add_environment("sample_line", [](const adtrain::EnvironmentSettings& /*settings*/) {
    return std::make_shared<adtrain::SampleFamily>();
  });
  registry.add_network("sample_network",
                       [](const adtrain::NetworkSettings& /*settings*/) { return nullptr; });
}
