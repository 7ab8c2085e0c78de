#include "run/Ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Host.h"
#include "distributed/Agreement.h"
#include "distributed/StopRequest.h"
#include "distributed/failure/FailureWatch.h"
#include "distributed/failure/TorchrunErrorFile.h"
#include "run/RunFolder.h"

namespace adtrain {
namespace {

/// The host and the cores that the scheduler lets this process use, as text.
std::string allowed_cores(const cpu_set_t& allowed) {
  std::string text = host_name() + ":";
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) text += fmt::format(" {}", core);
  return text;
}

/// This rank's part of the cores that it shares with others: a launcher that binds ranks has given each its
/// own, else all of a host have the same. Collective.
int64_t share_of_cores(Communicator& communicator) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  const std::string mine = allowed_cores(allowed);
  const std::vector<std::string> all = gather_texts(communicator, mine);
  return std::max<int64_t>(1, CPU_COUNT(&allowed) / std::count(all.begin(), all.end(), mine));
}

/// Tensors of a megabyte come and go in every step. By default malloc gives such blocks back to the system at
/// once and takes new ones, page fault by page fault: most of the time of an evaluation on the CPU. So freed
/// memory is kept.
void keep_freed_memory() {
  constexpr int kGigabyte = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kGigabyte);
  mallopt(M_TRIM_THRESHOLD, kGigabyte);
}

/// On the watch's thread.
void tell(const Failure& first, int64_t rank, const RunFolder& folder) {
  const std::string block = first.block();
  fmt::print(stderr, "\n{}", block);
  std::fflush(stderr);
  // One rank writes: rank 0, unless it is the one that cannot.
  const bool root_is_gone = first.who.rank == 0 && first.code == ExitCode::kPeerLost;
  if (rank != (root_is_gone ? 1 : 0)) return;
  try {
    write_file_atomically(folder.failure(), block);
  } catch (const std::exception& error) {
    fmt::print(stderr, "adtrain: {} was not written: {}\n", folder.failure().string(), error.what());
  }
}

/// Sees to it that all ranks know who failed first, and ends this process.
ExitCode leave(const std::exception& error, const Ranks& ranks, FailureWatch* watch) {
  constexpr double kSecondsForAnAnswer = 10;
  constexpr auto kBehindTheFirst = std::chrono::seconds(3);  // launchers take the first exit for the cause
  const bool lost_a_peer = dynamic_cast<const PeerLostError*>(&error) != nullptr;
  if (lost_a_peer && watch != nullptr && watch->ask(kSecondsForAnAnswer)) {
    std::this_thread::sleep_for(kBehindTheFirst);
    ranks.communicator->abort(ExitCode::kPeerLost);  // the cause was told, and this rank's error adds nothing
  }
  const auto me = RankIdentity::of_this_process(ranks.context.rank, ranks.context.world_size);
  const ExitCode code = report_failure(error, fmt::format("rank {} of {}", me.rank, me.world_size));
  if (!lost_a_peer) {
    write_torchrun_error_file(error);
    if (watch != nullptr) watch->report(Failure::of(error, me));
  }
  ranks.communicator->abort(code);
  return code;  // not reached
}

}  // namespace

Ranks Ranks::join(const RunConfig& config) {
  keep_freed_memory();
  Ranks ranks;
  ranks.context = LaunchContext::detect();
  ranks.communicator = Communicator::create(ranks.context, config.distributed);
  check_same(*ranks.communicator, "the configuration", config.fingerprint());
  ranks.device = RankDevice::choose(config.run.device, ranks.context, *ranks.communicator);
  ranks.communicator =
      Communicator::extend(std::move(ranks.communicator), ranks.device.device, config.distributed);
  ranks.cpu_threads = config.run.cpu_threads ? *config.run.cpu_threads : share_of_cores(*ranks.communicator);
  at::set_num_threads(static_cast<int>(ranks.cpu_threads));
  return ranks;
}

ExitCode as_one_of_the_ranks(const RunConfig& config, const std::function<ExitCode(const Ranks&)>& body) {
  Activity::of_this_process().begin("starting");
  StopRequest::expect_usr1();
  Ranks ranks = Ranks::join(config);
  if (ranks.context.world_size == 1) return body(ranks);
  std::unique_ptr<FailureWatch> watch;
  try {
    watch = FailureWatch::start(*ranks.communicator, config.distributed, [&](const Failure& first) {
      tell(first, ranks.context.rank, config.folder());
    });
    const ExitCode code = body(ranks);
    ranks.communicator->barrier();  // nobody leaves while others still need it
    return code;
  } catch (const std::exception& error) {
    return leave(error, ranks, watch.get());
  }
}

}  // namespace adtrain
