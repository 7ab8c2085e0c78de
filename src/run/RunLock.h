#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include <nlohmann/json_fwd.hpp>

#include "run/LaunchIdentity.h"

namespace adtrain {

/// Who has a run's folder: rank 0 of a start, on behalf of all its ranks.
struct LockHolder {
  ProcessIdentity process;
  LaunchIdentity launch;
  int64_t world_size = 1;
  double since = 0;   ///< seconds since 1970
  std::string token;  ///< of this lock alone

  /// "process 4711 on host n05 (SLURM, 8 ranks, job 123), since 2026-11-22 13:05:10".
  std::string text() const;
};

/// The file `lock` in a run's folder: whoever made it, and nobody else, rewrites what is there.
///
/// It is made by link(), which one of several at the same instant does first, over shared file systems too,
/// and it goes with the object. A holder that was killed leaves it behind. On the holder's own host it is
/// then known at once that the process is gone. Elsewhere it is known by the file's age: a thread of the
/// holder refreshes it, and one that is not refreshed for `stale_seconds`, by the file system's clock, is
/// nobody's. Only one of several succeeds a lock that is nobody's: the link `lock.after.TOKEN` decides.
///
/// A holder that was stopped for so long that another took it for gone finds the other's name in the file;
/// it must not write any more then. For one thread.
class RunLock {
 public:
  /// How long to wait, in seconds.
  struct Patience {
    double refresh_seconds = 5;       ///< between two refreshments of the file
    double stale_seconds = 60;        ///< without one: its holder, whom this host cannot see, is gone
    double predecessor_seconds = 40;  ///< for ranks of an earlier attempt of the same launch to end
  };

  /// Takes the lock, waiting where it is not clear yet whether its holder lives. Throws ConfigError that
  /// names the holder where it does, std::filesystem::filesystem_error where the folder cannot be written.
  RunLock(std::filesystem::path file, LaunchIdentity launch, int64_t world_size, const Patience& patience);
  RunLock(std::filesystem::path file, LaunchIdentity launch, int64_t world_size)
      : RunLock(std::move(file), std::move(launch), world_size, Patience()) {}
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws ConfigError where the file belongs to another start by now: reads it.
  void check() const;
  /// The same by what the refreshing thread last saw: cheap.
  void check_as_last_seen() const;

  /// Whether another launch than this process's has this lock: alive or not.
  static bool held_by_another_launch(const std::filesystem::path& file);

 private:
  struct Succession;
  class HolderWatch;
  void acquire();
  bool succeed(const Succession& gone);
  bool is_anothers() const;
  void keep_fresh();
  [[noreturn]] void fail_as_taken() const;

  std::filesystem::path file_, candidate_;
  LockHolder me_;
  Patience patience_;
  std::atomic<bool> taken_ = false;  ///< by another
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread refreshing_;
};

}  // namespace adtrain
