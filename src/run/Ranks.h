#pragma once

#include <functional>
#include <memory>

#include "distributed/Communicator.h"
#include "run/RankDevice.h"
#include "run/RunConfig.h"
#include "telemetry/Console.h"

namespace adtrain {

/// This process among the ranks that the launcher started: joined, agreed on the configuration, with its
/// share of the host's cores.
struct Ranks {
  LaunchContext context;
  std::unique_ptr<Communicator> communicator;
  RankDevice device;
  int64_t cpu_threads;

  /// Collective. Throws EnvironmentError where ranks do not meet, where their configurations differ, or where
  /// the device that is asked for is not there.
  static Ranks join(const RunConfig& config);
};

/// Joins the ranks and runs `body` as one of them. Where it throws on a rank of several, the error is
/// reported and the group aborted with its code at once: the others must not wait for a rank that has left.
ExitCode as_one_of_the_ranks(const RunConfig& config, const std::function<ExitCode(const Ranks&)>& body);

}  // namespace adtrain
