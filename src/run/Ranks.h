#pragma once

#include <filesystem>
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
  int64_t cpu_threads = 1;
};

/// Joins the ranks and runs `body` as one of them. Where a rank of several fails, in whatever way, the output
/// of every rank ends with one block that says which failed first, which `failure_file` (where it is empty:
/// `failure.txt` in the run's folder) holds too, and none waits for it any longer: the process ends with its
/// own error's code or with that of a lost peer. They are watched from the moment on at which they meet
/// (FailureWatch), and until then by what their host knows of their processes (StartWatch). Where the
/// launcher is gone, the run stops (LauncherWatch).
ExitCode as_one_of_the_ranks(const RunConfig& config, const std::function<ExitCode(const Ranks&)>& body,
                             const std::filesystem::path& failure_file = {});

}  // namespace adtrain
