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

/// The holder of a run's folder: rank 0 of a start, on behalf of all its ranks.
struct LockHolder {
  ProcessIdentity process;
  LaunchIdentity launch;
  int64_t world_size = 1;
  double since = 0;   ///< seconds since 1970
  std::string token;  ///< unique to this lock

  /// "process 4711 on host n05 (SLURM, 8 ranks, job 123), since 2026-11-22 13:05:10".
  std::string text() const;
};

/// The file `lock` in a run's folder: only the process that made it may write to the folder.
///
/// It is made by link(), which succeeds for only one of several processes, on shared file systems too; the
/// destructor removes it. A holder that was killed leaves it behind. The holder's own host detects at once
/// that the process is gone. Other hosts judge by the file's age: a thread of the holder refreshes it, and a
/// file that was not refreshed for `stale_seconds`, by the file system's clock, has no owner. Only one
/// process can succeed a lock without an owner: the link `lock.after.TOKEN` decides.
///
/// A holder that was stopped for so long that another took over finds the other's name in the file and must
/// not write any more. For one thread.
class RunLock {
 public:
  /// How long to wait, in seconds.
  struct Patience {
    double refresh_seconds = 5;       ///< between two refreshes of the file
    double stale_seconds = 60;        ///< without a refresh: a holder that this host cannot see is gone
    double predecessor_seconds = 40;  ///< time for ranks of an earlier attempt of the same launch to end
  };

  /// Takes the lock; waits while it is unclear whether its holder is alive. Throws ConfigError that names a
  /// living holder, and std::filesystem::filesystem_error where the folder cannot be written.
  RunLock(std::filesystem::path file, LaunchIdentity launch, int64_t world_size, const Patience& patience);
  RunLock(std::filesystem::path file, LaunchIdentity launch, int64_t world_size)
      : RunLock(std::move(file), std::move(launch), world_size, Patience()) {}
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Reads the file. Throws ConfigError where it belongs to another start by now.
  void check() const;
  /// The same, by what the refreshing thread last saw: cheap.
  void check_as_last_seen() const;

  /// Whether another launch than this process's has this lock, alive or not.
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
  std::atomic<bool> taken_ = false;  ///< by another process
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread refreshing_;
};

}  // namespace adtrain
