#include "run/Ranks.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>
#include <unistd.h>

#include "base/Error.h"
#include "distributed/Agreement.h"

namespace adtrain {
namespace {

/// A launcher that binds ranks to cores has shared them out already; else the ranks of a host share all of
/// them.
int64_t share_of_cores(const LaunchContext& context) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  const int64_t cores = CPU_COUNT(&allowed);
  const bool bound = cores < sysconf(_SC_NPROCESSORS_ONLN);
  return std::max<int64_t>(1, bound ? cores : cores / context.local_world_size);
}

/// Tensors of a megabyte come and go in every step. By default malloc gives such blocks back to the system at
/// once and takes new ones, page fault by page fault: most of the time of an evaluation on the CPU. So freed
/// memory is kept.
void keep_freed_memory() {
  constexpr int kGigabyte = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kGigabyte);
  mallopt(M_TRIM_THRESHOLD, kGigabyte);
}

}  // namespace

Ranks Ranks::join(const RunConfig& config) {
  keep_freed_memory();
  if (config.run.device == DeviceChoice::kCuda) {
    throw EnvironmentError(
        "device: cuda is asked for, and this version trains on CPU ranks only, whether there is a GPU or "
        "not; "
        "expected device: auto or cpu");
  }
  Ranks ranks;
  ranks.context = LaunchContext::detect();
  ranks.communicator = Communicator::create(ranks.context, config.distributed);
  check_same(*ranks.communicator, "the configuration", config.fingerprint());
  ranks.cpu_threads = config.run.cpu_threads.value_or(share_of_cores(ranks.context));
  at::set_num_threads(static_cast<int>(ranks.cpu_threads));
  return ranks;
}

ExitCode as_one_of_the_ranks(const RunConfig& config, const std::function<ExitCode(const Ranks&)>& body) {
  Ranks ranks = Ranks::join(config);
  if (ranks.context.world_size == 1) return body(ranks);
  try {
    const ExitCode code = body(ranks);
    ranks.communicator->barrier();  // nobody leaves while others still need it
    return code;
  } catch (const std::exception& error) {
    const std::string who = fmt::format("rank {} of {}", ranks.context.rank, ranks.context.world_size);
    ranks.communicator->abort(report_failure(error, who));
    throw;  // not reached: abort ends the process
  }
}

}  // namespace adtrain
