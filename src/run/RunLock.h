#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/Clock.h"
#include "base/Error.h"
#include "run/HeldFolder.h"
#include "run/LaunchIdentity.h"
#include "run/LockFile.h"

namespace adtrain {

/// The folder of a lock was moved or deleted while the lock was held.
struct FolderLost : EnvironmentError {
  using EnvironmentError::EnvironmentError;
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
/// not write any more. So does one whose folder was moved or deleted: its path stands for no run then. A lock
/// that was deleted alone is put back. For one thread.
class RunLock {
 public:
  /// How long to wait, in seconds.
  struct Patience {
    double refresh_seconds = 5;       ///< between two refreshes of the file
    double stale_seconds = 60;        ///< without a refresh: a holder that this host cannot see is gone
    double predecessor_seconds = 40;  ///< time for ranks of an earlier attempt of the same launch to end
  };

  using Tell = std::function<void(const std::string&)>;

  /// Takes the lock; waits while it is unclear whether its holder is alive, and tells why by `tell`, or on
  /// standard error where that is empty. Throws ConfigError that names a living holder, Error with the code
  /// 128 + n where signal n ends the waiting, and std::filesystem::filesystem_error where the folder cannot
  /// be written.
  RunLock(std::filesystem::path file, LaunchIdentity launch, int64_t world_size, const Patience& patience,
          const Tell& tell = {});
  RunLock(std::filesystem::path file, LaunchIdentity launch, int64_t world_size)
      : RunLock(std::move(file), std::move(launch), world_size, Patience()) {}
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Names files that exist in the folder as long as it is the run's: where all of them are gone, it was
  /// deleted.
  void guard(std::vector<std::filesystem::path> files);
  /// Reads the file. Throws ConfigError where it belongs to another start by now, and FolderLost where the
  /// folder is no longer in its place.
  void check() const;
  /// The same, by what the refreshing thread last saw: cheap.
  void check_as_last_seen() const;

  /// Whether another launch than this process's has this lock, alive or not.
  static bool held_by_another_launch(const std::filesystem::path& file);
  /// Whether this process has found that the folder of this lock, which it held, was moved or deleted.
  /// Thread-safe.
  static bool was_lost(const std::filesystem::path& file);

 private:
  struct Succession;
  class HolderWatch;
  enum class Standing { kHeld, kTaken, kLost };
  void acquire(const Tell& tell);
  bool succeed(const Succession& gone);
  void clear_away_the_dead() const;
  bool is_anothers() const;
  bool seems_lost() const;
  bool is_lost() const;
  Standing look() const;
  void put_back() const;
  void keep_fresh();
  void fail_unless_held(Standing standing) const;
  [[noreturn]] void fail_as_taken() const;
  [[noreturn]] void fail_as_lost() const;

  std::filesystem::path file_, candidate_;
  HeldFolder folder_;
  LockHolder me_;
  Patience patience_;
  Stopwatch life_;
  std::atomic<double> looked_ = 0;  ///< when the refreshing thread last did, in seconds of `life_`
  std::atomic<Standing> seen_ = Standing::kHeld;  ///< by that thread
  std::mutex mutex_;                              ///< guards the members below against that thread
  std::vector<std::filesystem::path> guarded_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread refreshing_;
};

}  // namespace adtrain
