#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// Processes of this host, as /proc shows them. Thread-safe.
namespace adtrain {

/// What is known of a process at this moment.
struct ProcessStatus {
  char state = '?';      ///< 'T' is stopped by a signal, 'Z' has ended and is not collected by its parent
  int64_t parent = 0;    ///< its id
  uint64_t started = 0;  ///< clock ticks after boot; together with the id it identifies a process uniquely

  bool ended() const { return state == 'Z' || state == 'X'; }
  bool stopped() const { return state == 'T' || state == 't'; }
};

/// Nothing where there is no such process or this one may not see it.
std::optional<ProcessStatus> status_of_process(int64_t process);

/// The environment with which the process was started; empty where this one may not see it.
std::map<std::string, std::string> environment_of_process(int64_t process);

/// The ids of all processes of this user.
std::vector<int64_t> processes_of_this_user();

}  // namespace adtrain
