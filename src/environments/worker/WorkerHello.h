#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "environments/Space.h"
#include "environments/TaskSpaces.h"

namespace adtrain {

/// What a worker says of itself and of the user's environments before anything is played. A value.
struct WorkerHello {
  Space observation;
  Space action;
  std::optional<std::vector<std::string>>
      tasks;             ///< the names of the module's TASKS, without addresses; nothing where it has none
  std::string versions;  ///< of Python, NumPy and Gymnasium, for people

  /// Reads the first line of a worker of `env_worker`. Where the worker reports a fault instead, where it
  /// speaks another version of the protocol, and where a space is none that adtrain knows, throws
  /// WorkerFault.
  static WorkerHello read(const nlohmann::json& line, const std::string& env_worker);

  /// Throws ConfigError where the spaces do not fit these, which a model was trained for. Names both.
  void expect_spaces(const TaskSpaces& trained, const std::string& env_worker) const;

  /// Whether another worker of the same environments is alike: has these spaces, and these tasks in this
  /// order. Tasks are known by their numbers and names alone, so those must mean the same in each process.
  bool is_like(const WorkerHello& other) const {
    return observation == other.observation && action == other.action && tasks == other.tasks;
  }
};

}  // namespace adtrain
