#include "run/RunLock.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/File.h"
#include "base/RandomToken.h"
#include "base/StandardStreams.h"
#include "run/StopWhileWaiting.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr double kLookSeconds = 0.2;
constexpr double kReserveSeconds = 30;  ///< in addition to the holder's own time
/// For so long a folder must be gone: a network file system may lose sight of one for a moment.
constexpr double kLostSeconds = 2;
/// A temporary file of a process that cannot be seen is left behind after this time; none waits as long.
constexpr double kForgottenSeconds = 3600;

fs::path with_suffix(fs::path path, const std::string& suffix) {
  return path += suffix;
}

fs::path successor_of(const fs::path& file, const std::string& token) {
  return with_suffix(file, ".after." + token);
}

/// The locks whose folders this process has lost.
class LostLocks {
 public:
  /// Never destroyed: the watch's thread may ask while the process ends.
  static LostLocks& of_this_process() {
    static auto* const lost = new LostLocks;
    return *lost;
  }
  void add(const fs::path& file) {
    const std::scoped_lock lock(mutex_);
    files_.insert(file);
  }
  void remove(const fs::path& file) {
    const std::scoped_lock lock(mutex_);
    files_.erase(file);
  }
  bool contain(const fs::path& file) {
    const std::scoped_lock lock(mutex_);
    return files_.contains(file);
  }

 private:
  std::mutex mutex_;
  std::set<fs::path> files_;
};

}  // namespace

/// The lock and the processes that were about to succeed it and died before they did: the last one counts.
struct RunLock::Succession {
  LockHolder holder;
  fs::path file;
  std::vector<fs::path> before;  ///< names to remove once the last one's successor is in place

  static std::optional<Succession> read(const fs::path& lock) {
    std::optional<LockHolder> holder = read_holder(lock);
    if (!holder) return std::nullopt;
    Succession chain{*holder, lock, {}};
    while (true) {
      const fs::path next = successor_of(lock, chain.holder.token);
      holder = read_holder(next);
      if (!holder || holder->token == chain.holder.token) return chain;
      chain.before.push_back(next);
      chain.holder = *holder;
      chain.file = next;
    }
  }
};

/// Observes the holder of the lock repeatedly.
class RunLock::HolderWatch {
 public:
  /// `beside` is a file of this process in the same file system.
  HolderWatch(const LaunchIdentity& me, const RunLock::Patience& patience, fs::path beside)
      : me_(me), patience_(patience), beside_(std::move(beside)) {}

  /// Why it is unclear whether the holder is gone, and for how long that may last; empty where it is not, or
  /// where the holder is about to go.
  const std::string& why_unclear() const { return why_unclear_; }

  /// Whether the holder is gone; false while that is unclear. Throws ConfigError where the holder is alive.
  bool is_gone(const Succession& current) {
    why_unclear_.clear();
    switch (current.holder.process.state()) {
      case ProcessIdentity::State::kGone:
        return true;
      case ProcessIdentity::State::kAlive:
        if (me_.same_launch(current.holder.launch) && waited_.seconds() < patience_.predecessor_seconds) {
          return false;  // a rank of the previous attempt, which its launcher is ending
        }
        fail(current,
             fmt::format("; `kill -USR1 {}` there makes it save and stop", current.holder.process.process));
      case ProcessIdentity::State::kUnknown:
        return is_stale(current);
    }
    return false;
  }

 private:
  bool is_stale(const Succession& current) {
    touch(beside_);  // its time is the file system's clock
    const auto now = modified_seconds(beside_), refreshed = modified_seconds(current.file);
    if (!now || !refreshed) return false;
    if (token_ != current.holder.token) {
      token_ = current.holder.token;
      first_seen_ = *refreshed;
    }
    if (*refreshed > first_seen_) fail(current, ", which has just refreshed its lock");
    // A launcher ends an attempt on all hosts before it starts the next one.
    const bool predecessor = me_.same_launch(current.holder.launch);
    const double patience = predecessor ? 3 * patience_.refresh_seconds : patience_.stale_seconds;
    const double left = patience - (*now - *refreshed);
    if (left < 0) return true;
    const bool is_readable = current.holder.process.process != 0;
    why_unclear_ = fmt::format(
        "the lock {} {}; waiting up to {:.0f} s in case {}, and then taking it over", current.file.string(),
        is_readable ? fmt::format("is that of {}, which this process cannot see", current.holder.text())
                    : "cannot be read",
        std::ceil(left), is_readable ? "it lives and refreshes the lock" : "another start is writing it");
    return false;
  }

  [[noreturn]] static void fail(const Succession& current, const std::string& more) {
    throw ConfigError(fmt::format(
        "{} is in use by {}{}. Wait for its end, or give this run a folder of its own by --set run_name=…",
        current.file.parent_path().string(), current.holder.text(), more));
  }

  const LaunchIdentity& me_;
  RunLock::Patience patience_;
  fs::path beside_;
  Stopwatch waited_;
  std::string token_;
  double first_seen_ = 0;  ///< when the holder of `token_` had refreshed it before this process looked
  std::string why_unclear_;
};

RunLock::RunLock(fs::path file, LaunchIdentity launch, int64_t world_size, const Patience& patience,
                 const Tell& tell)
    : file_(std::move(file)),
      folder_(file_.parent_path()),
      me_{.process = ProcessIdentity::of_this_process(),
          .launch = std::move(launch),
          .world_size = world_size,
          .since = unix_seconds(),
          .token = random_token()},
      patience_(patience) {
  candidate_ = with_suffix(file_, "." + me_.token + ".tmp");
  std::error_code ignored;
  try {
    write_file(candidate_, me_.json_text());
    acquire(tell);
  } catch (...) {
    fs::remove(candidate_, ignored);
    throw;
  }
  fs::remove(candidate_, ignored);
  clear_away_the_dead();
  LostLocks::of_this_process().remove(file_);  // it may have held another folder of this name before
  life_.restart();
  refreshing_ = std::thread([this] { keep_fresh(); });
}

RunLock::~RunLock() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  refreshing_.join();
  // First where the folder is now.
  for (const fs::path& file : {folder_.file(file_.filename()), file_}) {
    const auto holder = read_holder(file);
    if (!holder || holder->token != me_.token) continue;
    std::error_code ignored;
    fs::remove(file, ignored);
    return;
  }
}

void RunLock::acquire(const Tell& tell) {
  const Deadline deadline(patience_.stale_seconds + patience_.predecessor_seconds + kReserveSeconds);
  HolderWatch watch(me_.launch, patience_, candidate_);
  std::optional<StopWhileWaiting> stop;
  bool told = false;
  while (!link_exclusively(candidate_, file_)) {
    const std::optional<Succession> current = Succession::read(file_);
    if (!current) continue;  // it has just been released
    if (watch.is_gone(*current) && succeed(*current)) return;
    if (deadline.passed()) {
      throw EnvironmentError(
          fmt::format("cannot tell who has {} ({}); where nobody trains there, delete {}*, and start again",
                      file_.parent_path().string(), current->holder.text(), file_.string()));
    }
    // In the second look: a lock that is just being written needs no word.
    if (stop && !told && !watch.why_unclear().empty()) {
      told = true;
      if (tell) {
        tell(watch.why_unclear());
      } else {
        print_error(fmt::format("adtrain: {}\n", watch.why_unclear()));
      }
    }
    if (!stop) stop.emplace();
    if (const int signal = StopWhileWaiting::take(); signal != 0) {
      throw Error(static_cast<ExitCode>(128 + signal),
                  fmt::format("stopped by {} while it waited for {}, held by {}: nothing was changed there",
                              StopWhileWaiting::name_of(signal), file_.string(), current->holder.text()));
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(kLookSeconds));
  }
}

/// Takes over the lock; false where another process is faster.
bool RunLock::succeed(const Succession& gone) {
  const fs::path mine = successor_of(file_, gone.holder.token);
  if (!link_exclusively(candidate_, mine)) return false;
  const auto now = Succession::read(file_);
  // If false, another process has taken and released it meanwhile.
  const bool first = now && now->holder.token == me_.token;
  if (first) fs::rename(candidate_, file_);
  std::error_code ignored;
  fs::remove(mine, ignored);
  if (!first) return false;
  for (const fs::path& name : gone.before) fs::remove(name, ignored);
  return true;
}

/// Temporary files of processes that were killed while they asked for the lock.
void RunLock::clear_away_the_dead() const {
  const std::string beginning = file_.filename().string() + ".";
  const fs::path folder = file_.has_parent_path() ? file_.parent_path() : fs::path(".");
  std::vector<fs::path> dead;
  try {
    const auto now = modified_seconds(file_);  // it is this process's, and new
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (!entry.path().filename().string().starts_with(beginning) || !is_temporary(entry.path())) continue;
      const auto asks = read_holder(entry.path());
      const auto written = modified_seconds(entry.path());
      const bool is_gone = asks && asks->process.state() == ProcessIdentity::State::kGone;
      if (is_gone || (now && written && *now - *written > kForgottenSeconds)) dead.push_back(entry.path());
    }
  } catch (const fs::filesystem_error&) {
    return;  // they harm nobody
  }
  std::error_code ignored;
  for (const fs::path& file : dead) fs::remove(file, ignored);
}

/// Whether another process has the lock. A file that cannot be read at the moment, or that is gone, proves
/// nothing.
bool RunLock::is_anothers() const {
  const auto holder = read_holder(file_);
  return holder && holder->process.process != 0 && holder->token != me_.token;
}

/// Whether the folder is not in its place, or all that it held is gone. A lock that is deleted alone is not
/// enough: people do that, and it is put back.
bool RunLock::seems_lost() const {
  if (!guarded_.empty() && std::ranges::all_of(guarded_, is_absent)) return true;
  return is_absent(file_) && folder_.has_lost_its_name();
}

bool RunLock::is_lost() const {
  const Deadline deadline(kLostSeconds);
  while (seems_lost()) {
    if (deadline.passed()) return true;
    std::this_thread::sleep_for(std::chrono::duration<double>(kLookSeconds));
  }
  return false;
}

RunLock::Standing RunLock::look() const {
  const bool anothers = is_anothers();
  if (anothers && !folder_.has_lost_its_name()) return Standing::kTaken;
  if (anothers || is_lost()) {
    LostLocks::of_this_process().add(file_);
    return Standing::kLost;
  }
  // This process was stopped for so long that others could take the lock, and one has, and has ended since.
  const bool looked_away = life_.seconds() - looked_ > patience_.stale_seconds;
  return looked_away && is_absent(file_) ? Standing::kTaken : Standing::kHeld;
}

void RunLock::guard(std::vector<fs::path> files) {
  const std::scoped_lock lock(mutex_);
  guarded_ = std::move(files);
}

void RunLock::check() const {
  fail_unless_held(look());
}

void RunLock::check_as_last_seen() const {
  fail_unless_held(seen_);
}

void RunLock::fail_unless_held(Standing standing) const {
  if (standing == Standing::kTaken) fail_as_taken();
  if (standing == Standing::kLost) fail_as_lost();
}

void RunLock::fail_as_lost() const {
  const fs::path place = folder_.place();
  std::string found = "it is gone, or where it is now is not known here";
  if (!place.empty())
    found =
        folder_.has_lost_its_name() ? "it is " + place.string() + " now" : "the run's files in it are gone";
  throw FolderLost(
      fmt::format("{} was moved or deleted while this run trained in it: {}; expected it to stay where it "
                  "was until the run ends. Nothing more is written there",
                  file_.parent_path().string(), found));
}

bool RunLock::was_lost(const fs::path& file) {
  return LostLocks::of_this_process().contain(file);
}

void RunLock::fail_as_taken() const {
  const auto holder = read_holder(file_);
  const std::string found =
      holder ? fmt::format("{} has its lock, as this one's was not refreshed for {} s or was deleted",
                           holder->text(), patience_.stale_seconds)
             : fmt::format("its lock was not refreshed for {} s and is gone, so that another may have had it",
                           patience_.stale_seconds);
  throw ConfigError(
      fmt::format("{} belongs to another start by now: {}. Nothing more is written there; look at what the "
                  "other makes of it",
                  file_.parent_path().string(), found));
}

bool RunLock::held_by_another_launch(const fs::path& file) {
  const auto holder = read_holder(file);
  return holder && !holder->launch.started_this_process();
}

/// Somebody has deleted the file alone, and another start would take the folder for free.
void RunLock::put_back() const {
  try {
    write_file(candidate_, me_.json_text());
    link_exclusively(candidate_, file_);
  } catch (const fs::filesystem_error&) {  // the next look tries again
  }
  std::error_code ignored;
  fs::remove(candidate_, ignored);
}

void RunLock::keep_fresh() {
  std::unique_lock lock(mutex_);
  const auto ends = [this] { return ends_; };
  while (!ending_.wait_for(lock, std::chrono::duration<double>(patience_.refresh_seconds), ends)) {
    seen_ = look();
    if (seen_ != Standing::kHeld) return;
    if (is_absent(file_)) put_back();
    touch(file_);
    looked_ = life_.seconds();
  }
}

}  // namespace adtrain
