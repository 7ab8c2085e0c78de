#include "run/RunLock.h"

#include <cerrno>
#include <chrono>
#include <ctime>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "base/File.h"
#include "base/RandomToken.h"
#include "base/Text.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kLookSeconds = 0.2;
constexpr double kReserveSeconds = 30;  ///< in addition to the holder's own time

fs::path with_suffix(fs::path path, const std::string& suffix) {
  return path += suffix;
}

fs::path successor_of(const fs::path& file, const std::string& token) {
  return with_suffix(file, ".after." + token);
}

std::string moment_text(double unix_time) {
  const auto seconds = static_cast<std::time_t>(unix_time);
  std::tm parts{};
  char text[32] = "";
  if (localtime_r(&seconds, &parts) != nullptr) {
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  }
  return text;
}

json json_of(const LockHolder& holder) {
  return {{"process", holder.process},
          {"launch", holder.launch},
          {"world_size", holder.world_size},
          {"since", holder.since},
          {"token", holder.token}};
}

/// Nothing where there is no such file. A half-written or damaged file gives a holder without information.
std::optional<LockHolder> read_holder(const fs::path& file) {
  std::string text;
  try {
    text = read_file(file);
  } catch (const fs::filesystem_error& error) {
    if (error.code() == std::errc::no_such_file_or_directory) return std::nullopt;
  }
  LockHolder holder;
  try {
    const json parsed = json::parse(text);
    parsed.at("token").get_to(holder.token);
    parsed.at("process").get_to(holder.process);
    parsed.at("launch").get_to(holder.launch);
    parsed.at("world_size").get_to(holder.world_size);
    parsed.at("since").get_to(holder.since);
  } catch (const json::exception&) {
    holder = {};
  }
  // The token becomes part of a file's name.
  if (holder.token.empty() || holder.token.find('/') != std::string::npos) holder.token = "unreadable";
  return holder;
}

/// When the file was last refreshed, by the file system's clock. Opening it first makes a network file system
/// query its server.
std::optional<double> modified_seconds(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  struct stat found {};
  const bool known = fstat(descriptor, &found) == 0;
  ::close(descriptor);
  if (!known) return std::nullopt;
  return static_cast<double>(found.st_mtim.tv_sec) + 1e-9 * static_cast<double>(found.st_mtim.tv_nsec);
}

void touch(const fs::path& file) {
  utimensat(AT_FDCWD, file.c_str(), nullptr, 0);  // on failure, waiting processes see the file age
}

bool same_file(const fs::path& left, const fs::path& right) {
  struct stat first {
  }, second{};
  return stat(left.c_str(), &first) == 0 && stat(right.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

/// Links `name`. Whether this process made it; false where another was first.
bool link_exclusively(const fs::path& existing, const fs::path& name) {
  if (::link(existing.c_str(), name.c_str()) == 0) return true;
  const int reason = errno;
  // A network file system may have made the link and lost the answer.
  if (reason == EEXIST) return same_file(existing, name);
  if (reason == EPERM || reason == ENOTSUP || reason == ENOSYS || reason == EMLINK) {
    // On a file system without hard links, exclusive creation of a file is the next best.
    const int descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor >= 0) {
      ::close(descriptor);
      write_file(name, read_file(existing));
      return true;
    }
    if (errno == EEXIST) return false;
  }
  throw fs::filesystem_error("cannot lock", name, std::error_code(reason, std::generic_category()));
}

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

  /// Whether the holder is gone; false while that is unclear. Throws ConfigError where the holder is alive.
  bool is_gone(const Succession& current) {
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
    return *now - *refreshed > (predecessor ? 3 * patience_.refresh_seconds : patience_.stale_seconds);
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
};

std::string LockHolder::text() const {
  if (process.process == 0) return "a process that left no readable name";
  return fmt::format("process {} on host {} ({}, {} rank{}{}), since {}", process.process, process.host,
                     launch.launcher, world_size, world_size == 1 ? "" : "s",
                     launch.id.empty() ? "" : ", job " + launch.id, moment_text(since));
}

RunLock::RunLock(fs::path file, LaunchIdentity launch, int64_t world_size, const Patience& patience)
    : file_(std::move(file)),
      me_{.process = ProcessIdentity::of_this_process(),
          .launch = std::move(launch),
          .world_size = world_size,
          .since = unix_seconds(),
          .token = random_token()},
      patience_(patience) {
  candidate_ = with_suffix(file_, "." + me_.token + ".tmp");
  std::error_code ignored;
  try {
    write_file(candidate_, json_of(me_).dump(2) + "\n");
    acquire();
  } catch (...) {
    fs::remove(candidate_, ignored);
    throw;
  }
  fs::remove(candidate_, ignored);
  refreshing_ = std::thread([this] { keep_fresh(); });
}

RunLock::~RunLock() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  refreshing_.join();
  const auto holder = read_holder(file_);
  if (!holder || holder->token != me_.token) return;
  std::error_code ignored;
  fs::remove(file_, ignored);
}

void RunLock::acquire() {
  const Deadline deadline(patience_.stale_seconds + patience_.predecessor_seconds + kReserveSeconds);
  HolderWatch watch(me_.launch, patience_, candidate_);
  while (!link_exclusively(candidate_, file_)) {
    const std::optional<Succession> current = Succession::read(file_);
    if (!current) continue;  // it has just been released
    if (watch.is_gone(*current) && succeed(*current)) return;
    if (deadline.passed()) {
      throw EnvironmentError(
          fmt::format("cannot tell who has {} ({}); where nobody trains there, delete {}*, and start again",
                      file_.parent_path().string(), current->holder.text(), file_.string()));
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

/// Whether another process has the lock. A file that cannot be read at the moment, or that is gone, proves
/// nothing.
bool RunLock::is_anothers() const {
  const auto holder = read_holder(file_);
  return holder && holder->process.process != 0 && holder->token != me_.token;
}

void RunLock::check() const {
  if (is_anothers()) fail_as_taken();
}

void RunLock::check_as_last_seen() const {
  if (taken_) fail_as_taken();
}

void RunLock::fail_as_taken() const {
  const auto holder = read_holder(file_);
  throw ConfigError(fmt::format(
      "{} belongs to another start by now: {} took this one for gone, because its lock was not refreshed. "
      "Nothing more is written there; look at what the other makes of it",
      file_.parent_path().string(), holder ? holder->text() : "one that has ended since"));
}

bool RunLock::held_by_another_launch(const fs::path& file) {
  const auto holder = read_holder(file);
  return holder && !holder->launch.started_this_process();
}

void RunLock::keep_fresh() {
  std::unique_lock lock(mutex_);
  const auto ends = [this] { return ends_; };
  while (!ending_.wait_for(lock, std::chrono::duration<double>(patience_.refresh_seconds), ends)) {
    if (is_anothers()) {
      taken_ = true;
      return;
    }
    touch(file_);
  }
}

}  // namespace adtrain
