#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "environments/Space.h"

namespace adtrain {

/// What the metadata.json of a Minari data set says of it, as far as an import needs it. A value.
struct MinariMetadata {
  std::string name;         ///< its dataset_id, "D4RL/door/human-v2"; "" where it has none
  std::string environment;  ///< as Gymnasium registers it, "CartPole-v1"; "" where it does not say
  Space observation, action;
  int64_t episodes = 0, steps = 0;  ///< in all
  /// The mean returns of a random policy and of the best, of those that state them.
  std::optional<double> random_score, expert_score;

  /// Throws DataError that begins with `origin`, the file's name, where the text is no such JSON, where the
  /// episodes are in another format than HDF5, and where a space is none of Discrete, MultiDiscrete and Box:
  /// it says what to do then.
  static MinariMetadata parse(const std::string& text, const std::string& origin);
};

}  // namespace adtrain
