#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/Error.h"
#include "collectives/Communicator.h"
#include "framework/RankDevice.h"
#include "launch/DistributedOptions.h"
#include "launch/LaunchContext.h"
#include "watchdog/Failure.h"

namespace adtrain {

/// This process as one of the ranks that the launcher started: they have joined, were started alike, and each
/// has its share of the host's cores.
struct Ranks {
  LaunchContext context;
  std::unique_ptr<Communicator> communicator;
  RankDevice device;
  int64_t cpu_threads = 1;
  int64_t communication_bytes = 0;  ///< that NCCL has allocated on the device
};

/// The file that says which rank failed first.
struct FailureFile {
  std::filesystem::path path;     ///< empty: no file
  std::function<bool()> is_ours;  ///< whether it may still be written; empty: always
};

/// How ranks join.
struct RanksOptions {
  DistributedOptions distributed;
  DeviceChoice device = DeviceChoice::kAuto;
  std::optional<int64_t> cpu_threads;  ///< nothing: this rank's share of the available cores
  std::string configuration;           ///< must be the same text on all ranks
  /// Whether the command is continued by --resume, as failures then advise.
  bool continues_by_resume = false;
  FailureFile failure_file;
  /// Called with the first failure by rank 0, or by rank 1 where rank 0 is gone, after the block is printed,
  /// on a thread of the watch; empty: nothing.
  std::function<void(const Failure&)> on_failure;
};

/// Joins the ranks and runs `body` as one of them. Where one of several ranks fails, in whatever way, the
/// output of every rank ends with one block that says which failed first; the failure file holds the same
/// block. No rank waits any longer then: the process ends with its own error's code or with that of a lost
/// peer. Ranks are watched from when they meet (FailureWatch), and until then by what their host knows of
/// their processes (StartWatch). Where the launcher is gone, the run stops (LauncherWatch).
ExitCode as_one_of_the_ranks(const RanksOptions& options, const std::function<ExitCode(const Ranks&)>& body);

}  // namespace adtrain
