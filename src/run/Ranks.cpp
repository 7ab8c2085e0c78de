#include "run/Ranks.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/Error.h"
#include "distributed/Agreement.h"

namespace adtrain {
namespace {

/// A launcher that binds ranks to cores has shared them out already; else the ranks of a host share all of them.
int64_t share_of_cores(const LaunchContext& context) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  const int64_t cores = CPU_COUNT(&allowed);
  const bool bound = cores < sysconf(_SC_NPROCESSORS_ONLN);
  return std::max<int64_t>(1, bound ? cores : cores / context.local_world_size);
}

}  // namespace

Ranks Ranks::join(const RunConfig& config) {
  if (config.run.device == DeviceChoice::kCuda) {
    throw EnvironmentError("device: cuda is asked for, and this version trains on CPU ranks only, whether there is a GPU or not; "
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

}  // namespace adtrain
