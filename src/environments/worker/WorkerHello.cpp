#include "environments/worker/WorkerHello.h"

#include <fmt/format.h>

#include "base/Text.h"
#include "environments/worker/FaultReport.h"
#include "environments/worker/WorkerFault.h"
#include "environments/worker/WorkerMessage.h"

namespace adtrain {
namespace {

Space space_of(const nlohmann::json& line, const char* which, const std::string& env_worker) {
  try {
    return Space::from_json(line.at(which).get<std::string>(),
                            fmt::format("the {} of {}", which, env_worker));
  } catch (const DataError& error) {
    throw WorkerFault(ExitCode::kUsage, error.what());
  }
}

std::string both_texts(const Space& found, const Space& expected) {
  if (found.text() != expected.text())
    return fmt::format("found {}; expected {}", found.text(), expected.text());
  return fmt::format("found {}; expected {}", abridged(found.to_json()), abridged(expected.to_json()));
}

}  // namespace

WorkerHello WorkerHello::read(const nlohmann::json& line, const std::string& env_worker) {
  if (line.contains("fault")) throw_fault(line["fault"], env_worker, {});
  try {
    const int64_t protocol = line.at("protocol");
    if (protocol != kWorkerProtocol) {
      throw WorkerFault(
          ExitCode::kEnvironment,
          fmt::format("{}: the worker speaks version {} of the protocol; expected version {}: the file "
                      "environment_worker.py must be that of this adtrain; install both together",
                      env_worker, protocol, kWorkerProtocol));
    }
    WorkerHello hello;
    hello.observation = space_of(line, "observation_space", env_worker);
    hello.action = space_of(line, "action_space", env_worker);
    if (!line.at("tasks").is_null()) hello.tasks = line["tasks"].get<std::vector<std::string>>();
    hello.versions =
        fmt::format("Python {}, NumPy {}, Gymnasium {}", line.at("python").get<std::string>(),
                    line.at("numpy").get<std::string>(), line.at("gymnasium").get<std::string>());
    return hello;
  } catch (const nlohmann::json::exception& error) {
    throw WorkerFault(ExitCode::kEnvironment,
                      fmt::format("{}: the worker's first words are '{}' ({}); expected those of the file "
                                  "environment_worker.py of this adtrain",
                                  env_worker, abridged(line.dump()), error.what()));
  }
}

void WorkerHello::expect_spaces(const TaskSpaces& trained, const std::string& env_worker) const {
  std::string wrong;
  if (!trained.accepts_observations(observation)) {
    wrong += "\n  observations: " + both_texts(observation, trained.observation);
  }
  if (!action.fits(trained.action)) wrong += "\n  actions: " + both_texts(action, trained.action);
  if (wrong.empty()) return;
  throw ConfigError(fmt::format(
      "env_worker: the environments of {} have other spaces than the checkpoint was trained for:{}\nMake "
      "environments with those spaces, or evaluate a run that was trained for these",
      env_worker, wrong));
}

}  // namespace adtrain
