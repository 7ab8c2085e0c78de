#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace adtrain {

class ProcessGroup;

/// This process's place among the ranks of a run, as its launcher has set it.
struct LaunchInfo {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;  ///< among the ranks of this host; selects the GPU
  int64_t local_world_size = 1;
  /// "a single process", "torchrun", "adtrain launch", "mpirun" or "SLURM".
  std::string launcher;
  std::string run_id;         ///< torchrun's or the scheduler's name for the run; may be empty
  int64_t restart_count = 0;  ///< how often the launcher has restarted this group
  std::string evidence;       ///< one sentence: where the other values come from

  /// Reads the environment and nothing else: a torchrun environment (which `adtrain launch` sets too), then
  /// Open MPI's, then a SLURM step, else a single process. Connects to no other rank. Throws
  /// std::runtime_error (exit code 3), naming both facts, where sources contradict each other or themselves.
  static LaunchInfo detect();
};

/// Where the ranks of a run compute. kAuto uses GPUs where every rank has one for itself, else the CPU.
enum class Compute { kAuto, kCpu, kCuda };

/// How ranks connect and how long they wait for each other.
struct LaunchOptions {
  Compute compute = Compute::kAuto;
  double rendezvous_timeout_seconds = 300;  ///< until all ranks have joined
  double collective_timeout_seconds = 600;  ///< in one collective operation, before a peer counts as lost
  double silent_rank_seconds = 20;          ///< after which a silent rank counts as lost; 0: never
  double leave_within_seconds = 20;         ///< that a rank may go on, perhaps to save, after another failed
  /// Threads of libtorch's operators. std::nullopt: this rank's share of the cores that the host grants.
  std::optional<int64_t> cpu_threads;
  /// A value that must be equal on all ranks, such as a digest of the program's settings. Else no rank
  /// starts.
  std::string configuration;
  /// A file that one rank writes when the run fails: which rank failed first, and why. Empty: no file.
  std::filesystem::path failure_file;
};

/// Joins the ranks that the launcher started (mpirun, torchrun, SLURM's srun, `adtrain launch`, or none),
/// runs `body` as one of them and returns the exit code that main() must return. It is what `body` returns,
/// or the code of the error that `body` throws, which is printed on standard error. kExitRequeue (error.h)
/// becomes 0 under torchrun, which takes every other code for a failure.
///
///     int main() { return adtrain::run_ranks(train); }
///
/// GPUs communicate over NCCL, CPU ranks over MPI under mpirun, else over Gloo. On a GPU the device and a
/// stream of its own are current for the calling thread when `body` begins, as CUDA graphs require. The group
/// lives as long as the call: nothing that uses it may outlive `body`. All ranks leave together.
///
/// Ranks watch each other from the moment at which they connect. Where one fails, in whatever way (an
/// exception, a signal, a lost host), the output of every rank ends with one block that says which rank
/// failed first, and no rank waits for it. This call may then end the process instead of returning, without
/// running destructors. Where the launcher itself has ended, the run stops as by SIGUSR1 (StopSignal).
///
/// To be called once in a process, from main() before any other thread runs: MPI, signals and standard
/// streams belong to the process. SIGPIPE is ignored from then on, SIGUSR1 ends nothing, and
/// malloc() keeps freed blocks.
int run_ranks(const std::function<int(ProcessGroup&)>& body, const LaunchOptions& options = {});

}  // namespace adtrain
