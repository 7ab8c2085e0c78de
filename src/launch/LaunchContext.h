#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace adtrain {

/// What started this process as one of several.
enum class Launcher { kSingle, kFlags, kTorchrun, kLocal, kMpi, kSlurm };

/// "a single process", "explicit flags", "torchrun", "adtrain launch", "mpirun", "SLURM".
std::string launcher_name(Launcher launcher);

/// Reads an environment variable; nothing where it is unset or empty. Tests pass a function of their own.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_environment(const std::string& name);

/// What the command line says about the launch. All of it may be absent; half of it is an error.
struct LaunchFlags {
  std::optional<int64_t> rank, world_size;  ///< both or neither
  std::optional<int64_t> local_rank,
      local_world_size;                       ///< both or neither; absent: all ranks are on this host
  std::optional<std::string> master_address;  ///< needed from two ranks on
  std::optional<int64_t> master_port;         ///< needed from two ranks on
};

/// This process's place among the ranks of a run, and where they meet.
struct LaunchContext {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;  ///< among the ranks of this host; selects the GPU
  int64_t local_world_size = 1;
  Launcher launcher = Launcher::kSingle;

  std::string master_address;  ///< empty where the launcher needs none (a single process, mpirun)
  int64_t master_port = 0;
  bool agent_store = false;  ///< torchrun's agent serves the store: every rank is a client
  std::string run_id;        ///< distinguishes runs that meet at the same address
  int64_t restart_count = 0;

  std::string evidence;  ///< one sentence: what the choice is based on

  bool is_root() const { return rank == 0; }
  bool on_one_host() const { return local_world_size == world_size; }

  /// Considers, in this order: complete explicit flags, a complete torchrun environment (which `adtrain
  /// launch` sets too), Open MPI's environment (size > 1), a SLURM step of several tasks (SLURM_NTASKS > 1
  /// and SLURM_STEP_NUM_TASKS > 1; where the latter is unset, a job name that is neither `bash` nor
  /// `interactive`), else a single process. MPI precedes SLURM because under `mpirun` inside an allocation
  /// the inherited SLURM_PROCID is not the MPI rank. Detection initialises nothing. Throws EnvironmentError,
  /// naming both facts, where sources contradict each other or one contradicts itself.
  static LaunchContext detect(const LaunchFlags& flags = {},
                              const EnvironmentLookup& lookup = process_environment);
};

}  // namespace adtrain
