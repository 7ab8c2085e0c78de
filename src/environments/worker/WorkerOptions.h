#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/Section.h"

namespace adtrain {

/// Environments of the user's own, which run in Python processes beside this one.
struct WorkerOptions {
  std::optional<std::string> env_worker;  ///< module:function; none: the family's own environments
  std::optional<std::string> env_group;   ///< of several groups of spaces that a run has
  std::string env_python = "python3";
  int64_t env_workers = 1;
  bool env_overlap = true;
  double env_timeout = 60;
  int64_t max_episode_steps = 10'000;
  bool clip_actions = true;
  int64_t env_random_episodes = 0;

  void declare(Section& section);
  void check(Findings& findings) const;
};

}  // namespace adtrain
