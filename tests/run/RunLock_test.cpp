#include "run/RunLock.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

LaunchIdentity launch_by(int64_t agent) {
  return {.launcher = "torchrun", .id = "none", .agents = {ProcessIdentity::of(agent)}};
}

const RunLock::Patience kShort = {.refresh_seconds = 0.1, .stale_seconds = 3, .predecessor_seconds = 1};

std::string refusal(const std::function<void()>& action) {
  try {
    action();
    return "none";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

/// A lock as another process left it.
void write_lock(const fs::path& file, const ProcessIdentity& process, const std::string& token,
                const LaunchIdentity& launch = launch_by(1)) {
  const nlohmann::json lock = {
      {"process", process}, {"launch", launch}, {"world_size", 2}, {"since", 1e9}, {"token", token}};
  write_file(file, lock.dump());
}

void make_old(const fs::path& file, int64_t seconds) {
  struct stat found {};
  ASSERT_EQ(stat(file.c_str(), &found), 0);
  const timespec times[2] = {{found.st_mtim.tv_sec - seconds, 0}, {found.st_mtim.tv_sec - seconds, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
}

/// Of a process that has ended and whose parent, this one, knows it.
ProcessIdentity ended_process() {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const ProcessIdentity identity = ProcessIdentity::of(child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return identity;
}

ProcessIdentity of_another_host() {
  ProcessIdentity elsewhere = ProcessIdentity::of_this_process();
  elsewhere.host = "n05";
  return elsewhere;
}

std::string loss(const std::function<void()>& action) {
  try {
    action();
    return "none";
  } catch (const FolderLost& error) {
    return error.what();
  }
}

size_t files_in(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(RunLock, NamesItsHolderAndGoesWithIt) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  {
    const RunLock lock(file, launch_by(getppid()), 4, kShort);
    EXPECT_THAT(refusal([&] { RunLock second(file, launch_by(1), 1, kShort); }),
                AllOf(HasSubstr("is in use by process " + std::to_string(getpid())),
                      HasSubstr("torchrun, 4 ranks"), HasSubstr("run_name")));
    lock.check();
    EXPECT_EQ(files_in(folder.path()), 1U) << "no candidate stays";
  }
  EXPECT_EQ(files_in(folder.path()), 0U);
  const RunLock again(file, launch_by(1), 1, kShort);
}

TEST(RunLock, OfAProcessThatWasKilledHereIsNobodysAtOnce) {
  const TemporaryFolder folder;
  write_lock(folder.path() / "lock", ended_process(), "abc");
  const RunLock lock(folder.path() / "lock", launch_by(1), 1);  // with the long patience
  lock.check();
  EXPECT_EQ(files_in(folder.path()), 1U);
}

/// The same number, but another process by now.
TEST(RunLock, AProcessIsToldByItsStartToo) {
  const TemporaryFolder folder;
  ProcessIdentity former = ProcessIdentity::of_this_process();
  former.started -= 1;
  write_lock(folder.path() / "lock", former, "abc");
  const RunLock lock(folder.path() / "lock", launch_by(1), 1);
}

TEST(RunLock, OfAnotherHostIsStaleWhenNobodyRefreshesIt) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  write_lock(file, of_another_host(), "abc");
  make_old(file, 3600);
  const RunLock lock(file, launch_by(1), 1);
  EXPECT_EQ(files_in(folder.path()), 1U);
}

TEST(RunLock, OfAnotherHostThatRefreshesItIsItsHolders) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  write_lock(file, of_another_host(), "abc");
  std::atomic<bool> ends = false;
  std::thread holder([&] {
    while (!ends) {
      utimensat(AT_FDCWD, file.c_str(), nullptr, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  EXPECT_THAT(refusal([&] { RunLock second(file, launch_by(1), 1); }),
              AllOf(HasSubstr("on host n05"), HasSubstr("refreshed")));
  ends = true;
  holder.join();
}

TEST(RunLock, IsRefreshedWhileItsHolderLives) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  const RunLock lock(file, launch_by(1), 1, kShort);
  const auto recently = fs::file_time_type::clock::now() - std::chrono::minutes(30);
  make_old(file, 3600);
  for (int look = 0; look < 200 && fs::last_write_time(file) < recently; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_GT(fs::last_write_time(file), recently);
}

TEST(RunLock, ADamagedOneIsJudgedByItsAge) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  write_file(file, "{\"process\"");
  make_old(file, 3600);
  const RunLock lock(file, launch_by(1), 1);
}

/// Who died between being named the successor and taking the lock's name.
TEST(RunLock, ASuccessorThatDiedIsSucceededToo) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  write_lock(file, ended_process(), "abc");
  write_lock(folder.path() / "lock.after.abc", ended_process(), "def");
  const RunLock lock(file, launch_by(1), 1);
  lock.check();
  EXPECT_EQ(files_in(folder.path()), 1U);
}

TEST(RunLock, OneOfManyAtTheSameInstantGetsIt) {
  for (const bool stale : {false, true}) {
    for (int round = 0; round < 5; ++round) {
      const TemporaryFolder folder;
      const fs::path file = folder.path() / "lock";
      if (stale) write_lock(file, ended_process(), "abc");
      int go[2], hold[2];
      ASSERT_EQ(pipe(go), 0);
      ASSERT_EQ(pipe(hold), 0);
      std::vector<pid_t> children;
      for (int child = 0; child < 8; ++child) {
        children.push_back(fork());
        if (children.back() != 0) continue;
        char byte = 0;
        close(go[1]);
        close(hold[1]);
        [[maybe_unused]] ssize_t got = read(go[0], &byte, 1);
        int code = 1;
        try {
          const RunLock lock(file, launch_by(getpid()), 1, kShort);
          code = 0;
          got = read(hold[0], &byte, 1);  // until all others have been refused
        } catch (const ConfigError&) {
          code = 2;
        }
        _exit(code);
      }
      close(go[0]);
      close(hold[0]);
      close(go[1]);  // the instant
      int won = 0, refused = 0;
      for (size_t ended = 0; ended < children.size(); ++ended) {
        if (ended + 1 == children.size()) close(hold[1]);
        int status = 0;
        wait(&status);
        won += WEXITSTATUS(status) == 0 ? 1 : 0;
        refused += WEXITSTATUS(status) == 2 ? 1 : 0;
      }
      EXPECT_EQ(won, 1) << "round " << round;
      EXPECT_EQ(refused, 7) << "round " << round;
    }
  }
}

/// torchrun starts the next attempt; a rank of the one before may take some time to die.
TEST(RunLock, AnAttemptWaitsForTheOneBeforeIt) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  const pid_t former = fork();
  if (former == 0) {
    pause();
    _exit(0);
  }
  write_lock(file, ProcessIdentity::of(former), "abc", launch_by(getppid()));
  EXPECT_THAT(refusal([&] { RunLock stranger(file, launch_by(1), 1, kShort); }), HasSubstr("in use"));
  std::thread end([former] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(former, SIGKILL);
  });
  {
    const RunLock next(file, launch_by(getppid()), 1,
                       {.refresh_seconds = 1, .stale_seconds = 1, .predecessor_seconds = 60});
  }
  end.join();
  waitpid(former, nullptr, 0);
}

TEST(RunLock, AHolderThatWasTakenForGoneWritesNothingMore) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  const RunLock suspended(file, launch_by(1), 1, kShort);
  write_lock(folder.path() / "other", of_another_host(), "abc");
  fs::rename(folder.path() / "other", file);
  EXPECT_THAT(refusal([&] { suspended.check(); }), AllOf(HasSubstr("belongs to another"), HasSubstr("n05")));
  const auto seen = [&] { return refusal([&] { suspended.check_as_last_seen(); }) != "none"; };
  for (int look = 0; look < 200 && !seen(); ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(seen());
}

TEST(RunLock, AFolderThatWasMovedOrDeletedIsLost) {
  for (const bool moved : {true, false}) {
    const TemporaryFolder folder;
    const fs::path above = fs::canonical(folder.path()), run = above / "run", elsewhere = above / "elsewhere";
    fs::create_directory(run);
    {
      const RunLock lock(run / "lock", launch_by(1), 1, kShort);
      lock.check();
      EXPECT_FALSE(RunLock::was_lost(run / "lock"));
      if (moved) {
        fs::rename(run, elsewhere);
      } else {
        std::error_code refreshed;  // the lock is back before its folder is gone
        while (fs::exists(run)) fs::remove_all(run, refreshed);
      }
      fs::create_directory(run);  // as one does who makes missing folders
      const std::string found = moved ? "it is " + elsewhere.string() + " now" : "it is gone";
      EXPECT_THAT(loss([&] { lock.check(); }),
                  AllOf(HasSubstr(run.string() + " was moved or deleted"), HasSubstr(found),
                        HasSubstr("Nothing more is written there")));
      EXPECT_TRUE(RunLock::was_lost(run / "lock"));
      const auto seen = [&] { return loss([&] { lock.check_as_last_seen(); }) != "none"; };
      for (int look = 0; look < 200 && !seen(); ++look)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_TRUE(seen());
    }
    EXPECT_EQ(files_in(run), 0U);
    if (moved) {
      EXPECT_EQ(files_in(elsewhere), 0U) << "the lock ends with its holder, wherever it is";
    }
  }
}

TEST(RunLock, OneThatWasDeletedAloneIsPutBack) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  const RunLock lock(file, launch_by(getppid()), 1, kShort);
  fs::remove(file);
  lock.check();
  for (int look = 0; look < 200 && !fs::exists(file); ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_THAT(refusal([&] { RunLock second(file, launch_by(1), 1, kShort); }),
              HasSubstr("is in use by process " + std::to_string(getpid())));
  lock.check();
  lock.check_as_last_seen();
}

TEST(RunLock, AFolderWhoseGuardedFilesAreAllGoneWasDeleted) {
  const TemporaryFolder folder;
  const std::vector<fs::path> guarded = {folder.path() / "config.yaml", folder.path() / "run.json"};
  for (const fs::path& file : guarded) write_file(file, "");
  RunLock lock(folder.path() / "lock", launch_by(1), 1, kShort);
  lock.guard(guarded);
  fs::remove(guarded[0]);
  lock.check();
  fs::remove(guarded[1]);
  EXPECT_THAT(loss([&] { lock.check(); }), HasSubstr("the run's files in it are gone"));
}

/// A network file system may lose sight of them.
TEST(RunLock, FilesThatAreBackAtOnceWereNotDeleted) {
  const TemporaryFolder folder;
  const fs::path guarded = folder.path() / "config.yaml", hidden = folder.path() / "hidden";
  write_file(guarded, "");
  RunLock lock(folder.path() / "lock", launch_by(1), 1, kShort);
  lock.guard({guarded});
  fs::rename(guarded, hidden);
  const std::jthread back([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fs::rename(hidden, guarded);
  });
  lock.check();
}

/// Its refreshing thread did not run meanwhile, and the other start has ended.
TEST(RunLock, AHolderThatWasStoppedForLongAndFindsNoLockWasTakenForGone) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  const RunLock suspended(file, launch_by(1), 1,
                          {.refresh_seconds = 60, .stale_seconds = 0.1, .predecessor_seconds = 1});
  fs::remove(file);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_THAT(refusal([&] { suspended.check(); }), HasSubstr("belongs to another start"));
}

TEST(RunLock, TellsForHowLongItWaitsWhereItIsUnclearWhetherTheHolderLives) {
  for (const bool readable : {false, true}) {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "lock";
    if (readable) {
      write_lock(file, of_another_host(), "abc", launch_by(getppid()));
    } else {
      write_file(file, "");
    }
    std::vector<std::string> told;
    const RunLock lock(file, launch_by(1), 1, kShort,
                       [&told](const std::string& line) { told.push_back(line); });
    ASSERT_EQ(told.size(), 1U);
    EXPECT_THAT(told[0], AllOf(HasSubstr("the lock " + file.string()), HasSubstr("; waiting up to "),
                               HasSubstr(readable ? "on host n05" : "cannot be read"),
                               HasSubstr(readable ? "lives" : "another start is writing it")));
  }
}

TEST(RunLock, ASignalEndsTheWaitingAndNothingIsLeft) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  write_file(file, "");
  try {
    const RunLock lock(file, launch_by(1), 1, RunLock::Patience(),
                       [](const std::string&) { std::raise(SIGTERM); });
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.exit_code()), 128 + SIGTERM);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("stopped by SIGTERM"), HasSubstr(file.string())));
  }
  EXPECT_EQ(files_in(folder.path()), 1U);
}

TEST(RunLock, ClearsAwayWhatKilledStartsLeftThatAskedForIt) {
  const TemporaryFolder folder;
  const auto asking = [&](const char* digits) {
    return folder.path() / (std::string("lock.000000000000000") + digits + ".tmp");
  };
  write_lock(asking("1"), ended_process(), "abc");
  write_lock(asking("2"), ProcessIdentity::of_this_process(), "def");
  write_lock(asking("3"), of_another_host(), "ghi");
  write_file(asking("4"), "");
  write_file(asking("5"), "");
  make_old(asking("5"), 7200);
  const RunLock lock(folder.path() / "lock", launch_by(1), 1);
  for (const char* gone : {"1", "5"}) EXPECT_FALSE(fs::exists(asking(gone))) << gone;
  for (const char* kept : {"2", "3", "4"}) EXPECT_TRUE(fs::exists(asking(kept))) << kept;
}

TEST(RunLock, TellsOwnRanksFromThoseOfAnotherLaunch) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  EXPECT_FALSE(RunLock::held_by_another_launch(file)) << "nobody has it";
  write_lock(file, of_another_host(), "abc", launch_by(getppid()));
  EXPECT_FALSE(RunLock::held_by_another_launch(file)) << "rank 0 of this launch";
  write_lock(file, of_another_host(), "abc", launch_by(1));
  EXPECT_TRUE(RunLock::held_by_another_launch(file));
}

TEST(RunLock, AFolderThatCannotBeWrittenIsAFileSystemsError) {
  EXPECT_THROW(RunLock("/proc/adtrain/lock", launch_by(1), 1), fs::filesystem_error);
}

TEST(LaunchIdentity, IsTheSameForARestartAlone) {
  LaunchIdentity first = launch_by(getpid()), restart = launch_by(getpid());
  EXPECT_TRUE(first.same_launch(restart));
  restart.agents.push_back(ProcessIdentity::of(1));  // of another node; one in common is enough
  EXPECT_TRUE(first.same_launch(restart));
  EXPECT_FALSE(first.same_launch(launch_by(1))) << "another torchrun with the run id 'none'";
  restart.id = "other";
  EXPECT_FALSE(first.same_launch(restart));
  LaunchIdentity from_a_shell = {.launcher = "a single process", .id = "", .agents = first.agents};
  EXPECT_FALSE(from_a_shell.same_launch(from_a_shell)) << "a shell starts many";
  const LaunchIdentity job = {.launcher = "SLURM", .id = "17", .agents = {ProcessIdentity::of(1)}};
  const LaunchIdentity requeued = {
      .launcher = "SLURM", .id = "17", .agents = {ProcessIdentity::of(getpid())}};
  EXPECT_TRUE(job.same_launch(requeued)) << "SLURM starts other processes, and the job is the same";
}

}  // namespace
}  // namespace adtrain
