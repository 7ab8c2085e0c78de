#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "collectives/Communicator.h"
#include "launch/LaunchContext.h"

namespace adtrain {

/// Identifies a process, so that it is not confused with another that has the same id later, on another host,
/// after a reboot or in another container.
struct ProcessIdentity {
  std::string host;
  std::string boot;           ///< the kernel's id of this boot
  std::string pid_namespace;  ///< the namespace of the process id
  int64_t process = 0;
  uint64_t started = 0;  ///< clock ticks after the boot

  static ProcessIdentity of_this_process();
  /// The identity of a process of this host; `started` is 0 where there is none.
  static ProcessIdentity of(int64_t process);

  enum class State { kAlive, kGone, kUnknown };
  /// Unknown for a process that runs, or ran, where this process cannot see it: on another host, boot or
  /// container.
  State state() const;

  bool operator==(const ProcessIdentity&) const = default;
};

/// One start of a run by a launcher, restarts by the same launcher included.
struct LaunchIdentity {
  std::string launcher;  ///< in words
  std::string id;        ///< torchrun's run id, SLURM's job; empty where the launcher has none
  /// The processes that started the ranks: torchrun's agents, mpirun and its daemons, or the shell. Each
  /// once.
  std::vector<ProcessIdentity> agents;

  /// Collective.
  static LaunchIdentity of_this_launch(const LaunchContext& context, Communicator& communicator);

  /// Whether this is a restart by the same launcher. SLURM numbers its jobs; torchrun's run ids need not
  /// differ from launch to launch, but launches share no agent. A launcher without ids restarts nothing: two
  /// starts from one shell are two launches.
  bool same_launch(const LaunchIdentity& other) const;
  /// Whether this process is one of its ranks.
  bool started_this_process() const;
};

void to_json(nlohmann::json& json, const ProcessIdentity& identity);
void from_json(const nlohmann::json& json, ProcessIdentity& identity);
void to_json(nlohmann::json& json, const LaunchIdentity& identity);
void from_json(const nlohmann::json& json, LaunchIdentity& identity);

}  // namespace adtrain
