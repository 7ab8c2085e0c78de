#include "framework/Ranks.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>

#include "base/Cores.h"
#include "base/Error.h"
#include "base/File.h"
#include "base/Host.h"
#include "base/StandardStreams.h"
#include "collectives/Agreement.h"
#include "collectives/Meeting.h"
#include "collectives/StopRequest.h"
#include "launch/HeldTermination.h"
#include "launch/LaunchVerdict.h"
#include "launch/LauncherWatch.h"
#include "memory/MemoryMeter.h"
#include "watchdog/FailureWatch.h"
#include "watchdog/ForeignError.h"
#include "watchdog/StartWatch.h"
#include "watchdog/TorchrunErrorFile.h"

namespace adtrain {
namespace {

/// The host and the cores that the scheduler lets this process use, as text.
std::string allowed_cores(const cpu_set_t& allowed) {
  std::string text = host_name() + ":";
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) text += fmt::format(" {}", core);
  return text;
}

/// This rank's part of the cores that it shares with others: a launcher that binds ranks gives each its own,
/// else all ranks of a host have the same. A control group's limit is for all `local_ranks` of the host.
/// Collective.
int64_t share_of_cores(Communicator& communicator, int64_t local_ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  const std::string mine = allowed_cores(allowed);
  const std::vector<std::string> all = gather_texts(communicator, mine);
  const int64_t bound_to = CPU_COUNT(&allowed) / std::count(all.begin(), all.end(), mine);
  const std::optional<int64_t> quota = cpu_quota();
  return std::max<int64_t>(1, quota ? std::min(bound_to, *quota / local_ranks) : bound_to);
}

/// Makes malloc keep freed memory. Every step allocates and frees tensors of a megabyte. By default malloc
/// returns such blocks to the system at once and takes new ones, page fault by page fault: most of the time
/// of an evaluation on the CPU.
void keep_freed_memory() {
  constexpr int kGigabyte = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kGigabyte);
  mallopt(M_TRIM_THRESHOLD, kGigabyte);
}

/// Reports the first failure, on the watch's thread.
void tell(const Failure& first, const LaunchContext& context, const RanksOptions& options) {
  const FailureFile& file = options.failure_file;
  const std::string block = first.block();
  tell_launcher(first.who.rank);
  std::string unwritten;
  // One rank speaks for all: rank 0, unless that is the rank that cannot. Rank 1 may be lost with it, as both
  // may be on one host, and the others cannot know that. So one rank of each host writes the file then.
  const bool root_is_gone = first.who.rank == 0 && first.code == ExitCode::kPeerLost;
  const bool speaks_for_all = context.rank == (root_is_gone ? 1 : 0);
  const bool writes = speaks_for_all || (root_is_gone && context.local_rank == 0);
  if (!file.path.empty() && writes) {
    try {
      if (!file.is_ours || file.is_ours()) write_file_atomically(file.path, block);
    } catch (const std::exception& error) {
      unwritten = fmt::format("adtrain: {} was not written: {}\n", file.path.string(), error.what());
    }
  }
  print_error("\n" + block + unwritten);  // late, as printing may block where nobody reads
  if (options.on_failure && speaks_for_all) options.on_failure(first);
}

/// Makes sure that all ranks know which failed first, and ends this process.
ExitCode leave(const std::exception& error, const Ranks& ranks, FailureWatch* watch) {
  constexpr double kSecondsForAnAnswer = 10;
  constexpr auto kBeforeLeaving = std::chrono::seconds(3);  // launchers take the first exit for the cause
  const bool lost_a_peer = dynamic_cast<const PeerLostError*>(&error) != nullptr;
  if (lost_a_peer && watch != nullptr && watch->ask(kSecondsForAnAnswer)) {
    std::this_thread::sleep_for(kBeforeLeaving);
    // The cause is reported, and this rank's error adds nothing.
    ranks.communicator->abort(ExitCode::kPeerLost);
  }
  const auto me = RankIdentity::of_this_process(ranks.context.rank, ranks.context.world_size);
  const ExitCode code = report_failure(as_error(error), fmt::format("rank {} of {}", me.rank, me.world_size));
  if (!lost_a_peer) {
    write_torchrun_error_file(error);
    if (watch != nullptr) watch->report(Failure::of(error, me));
  }
  ranks.communicator->abort(code);
  return code;  // not reached
}

/// The first operations over ranks make NCCL connect them and allocate its buffers: here, where an error of
/// it is one of the start, and where its memory can be told from that of training.
void warm_up(Communicator& communicator, const ReducerOptions& reducer) {
  if (!communicator.device().is_cuda() || communicator.world_size() == 1) return;
  at::Tensor bucket = at::zeros({reducer.bucket_bytes / static_cast<int64_t>(sizeof(float))},
                                at::TensorOptions(communicator.device()).dtype(at::kFloat));
  communicator.all_reduce(bucket, ReduceOp::kSum);
  communicator.broadcast(bucket, 0);
  communicator.synchronize();
}

/// After the ranks have met: checks that they were started alike, and gives each its device and its cores.
void prepare(Ranks& ranks, const RanksOptions& options) {
  check_same(*ranks.communicator, "the configuration", options.configuration);
  ranks.device = RankDevice::choose(options.device, ranks.context, *ranks.communicator);
  const int64_t before = bytes_outside_allocator(ranks.device.device);
  ranks.communicator =
      Communicator::extend(std::move(ranks.communicator), ranks.device.device, options.distributed);
  warm_up(*ranks.communicator, options.distributed.reducer());
  // Other processes' memory comes and goes meanwhile.
  const int64_t grown = bytes_outside_allocator(ranks.device.device) - before;
  ranks.communication_bytes = ranks.communicator->world_size() > 1 ? std::max<int64_t>(0, grown) : 0;
  ranks.cpu_threads = options.cpu_threads
                          ? *options.cpu_threads
                          : share_of_cores(*ranks.communicator, ranks.context.local_world_size);
  at::set_num_threads(static_cast<int>(ranks.cpu_threads));
}

/// After the ranks have failed to meet: makes sure that all who have arrived know because of which rank.
void tell_of_failed_meeting(const std::exception& error, const LaunchContext& context, StartWatch& start,
                            FailureWatch* watch) {
  constexpr double kSecondsForAnAnswer = 3;
  // A rank that still arrives must not find this one gone.
  constexpr auto kAfterTheFirst = std::chrono::seconds(3);
  start.nobody_is_waited_for();
  const auto* not_there = dynamic_cast<const MeetingError*>(&error);
  if (not_there != nullptr) {
    if (watch != nullptr) watch->report(not_there->failure());
    start.tell(not_there->failure());
  } else if (watch != nullptr && !watch->ask(kSecondsForAnAnswer)) {
    watch->report(Failure::of(error, RankIdentity::of_this_process(context.rank, context.world_size)));
    return;
  } else if (watch == nullptr && !start.name_culprit()) {
    return;
  }
  std::this_thread::sleep_for(kAfterTheFirst);
}

/// Joins the ranks. Each is watched from its arrival.
void meet(Ranks& ranks, const DistributedOptions& options, StartWatch& start,
          std::unique_ptr<FailureWatch>& watch) {
  // Kept until all have been told: rank 0's holds the store that they query.
  std::unique_ptr<Meeting> meeting;
  try {
    meeting = Meeting::attend(ranks.context, options, start);
    const auto word_of_root = [&meeting](const std::string& word) { return meeting->word_of_root(word); };
    watch = FailureWatch::start(ranks.context, word_of_root, options,
                                [&start](const Failure& first) { start.tell(first); });
    start.hand_over(watch.get());
    ranks.communicator = meeting->join();
    start.nobody_is_waited_for();
  } catch (const std::exception& error) {
    tell_of_failed_meeting(error, ranks.context, start, watch.get());
    throw;
  }
}

}  // namespace

ExitCode as_one_of_the_ranks(const RanksOptions& options, const std::function<ExitCode(const Ranks&)>& body) {
  Activity& activity = Activity::of_this_process();
  activity.begin("starting");
  activity.continues_by_resume(options.continues_by_resume);
  StopRequest::expect_usr1();
  keep_freed_memory();
  Ranks ranks;
  ranks.context = LaunchContext::detect();
  const LauncherWatch launcher(ranks.context, options.distributed.leave_within_seconds, activity.to_go_on());
  if (ranks.context.world_size == 1) {
    held_termination::release();
    ranks.communicator = Communicator::create(ranks.context, options.distributed);
    prepare(ranks, options);
    return body(ranks);
  }
  std::unique_ptr<FailureWatch> watch;
  StartWatch start(ranks.context, options.distributed,
                   [&](const Failure& first) { tell(first, ranks.context, options); });
  meet(ranks, options.distributed, start, watch);
  try {
    prepare(ranks, options);
  } catch (const EnvironmentError&) {
    throw;  // the same error on every rank
  } catch (const std::exception& error) {
    return leave(error, ranks, watch.get());
  }
  try {
    const ExitCode code = body(ranks);
    // The output has named a rank that failed, and the exit code must not contradict it.
    if (watch != nullptr && watch->settled()) throw PeerLostError("the run was given up before its end");
    ranks.communicator->barrier();  // nobody leaves while others still need it
    return code;
  } catch (const std::exception& error) {
    return leave(error, ranks, watch.get());
  }
}

}  // namespace adtrain
