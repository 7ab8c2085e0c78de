#include "adtrain/communicator.h"
#include "adtrain/launch.h"
#include "base/StandardStreams.h"
#include "framework/JoinedGroup.h"
#include "framework/Ranks.h"
#include "launch/StopCode.h"
#include "watchdog/ForeignError.h"
#include "watchdog/TorchrunErrorFile.h"

namespace adtrain {
namespace {

DeviceChoice choice_of(Compute compute) {
  switch (compute) {
    case Compute::kCpu:
      return DeviceChoice::kCpu;
    case Compute::kCuda:
      return DeviceChoice::kCuda;
    case Compute::kAuto:
      break;
  }
  return DeviceChoice::kAuto;
}

RanksOptions ranks_options(const LaunchOptions& options) {
  RanksOptions ranks;
  ranks.distributed.rendezvous_timeout_seconds = options.rendezvous_timeout_seconds;
  ranks.distributed.collective_timeout_seconds = options.collective_timeout_seconds;
  ranks.distributed.silent_rank_seconds = options.silent_rank_seconds;
  ranks.distributed.leave_within_seconds = options.leave_within_seconds;
  ranks.device = choice_of(options.compute);
  ranks.cpu_threads = options.cpu_threads;
  ranks.configuration = options.configuration;
  ranks.failure_file.path = options.failure_file;
  return ranks;
}

ExitCode for_launcher(ExitCode code, const LaunchContext& context) {
  return code == ExitCode::kRequeue ? stop_code(context.launcher) : code;
}

}  // namespace

int run_ranks(const std::function<int(ProcessGroup&)>& body, const LaunchOptions& options) {
  secure_standard_streams();
  try {
    return static_cast<int>(as_one_of_the_ranks(ranks_options(options), [&](const Ranks& ranks) {
      ProcessGroup::Joined joined{ranks.context, *ranks.communicator};
      ProcessGroup group(joined);
      return for_launcher(static_cast<ExitCode>(body(group)), ranks.context);
    }));
  } catch (const std::exception& error) {
    write_torchrun_error_file(error);
    return static_cast<int>(report_failure(as_error(error)));
  }
}

}  // namespace adtrain
