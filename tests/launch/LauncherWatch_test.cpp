#include "launch/LauncherWatch.h"

#include <csignal>
#include <cstdlib>
#include <functional>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "support/RankOfTwo.h"

namespace adtrain {
namespace {

volatile std::sig_atomic_t asked = 0;

LaunchContext under_torchrun() {
  LaunchContext context = rank_of_two(0, 1);
  context.run_id = "run";
  return context;
}

/// Runs `as_rank` in a process whose parent, the launcher, ends as soon as it says so by closing its end of
/// the pipe. Returns what the rank's process ended with.
int with_launcher_that_dies(const std::function<int(int launcher_may_go)>& as_rank) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // the rank becomes a child of this process when its launcher dies
  int go[2];
  EXPECT_EQ(pipe(go), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    if (fork() == 0) {
      close(go[0]);
      _exit(as_rank(go[1]));
    }
    close(go[1]);
    char nothing = 0;
    while (read(go[0], &nothing, 1) > 0) {
    }
    raise(SIGKILL);
  }
  close(go[0]);
  close(go[1]);
  waitpid(launcher, nullptr, 0);
  int status = 0;
  waitpid(-1, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(LauncherWatch, ARankThatIsLeftBehindIsAskedToStop) {
  EXPECT_EQ(with_launcher_that_dies([](int launcher_may_go) {
              std::signal(SIGUSR1, [](int) { asked = 1; });
              const LauncherWatch watch(under_torchrun(), 60, "start it again");
              close(launcher_may_go);
              const Deadline deadline(20);
              while (asked == 0 && !deadline.passed()) usleep(10'000);
              return asked != 0 ? 42 : 1;
            }),
            42);
}

TEST(LauncherWatch, ARankThatDoesNotStopIsEnded) {
  EXPECT_EQ(with_launcher_that_dies([](int launcher_may_go) {
              std::signal(SIGUSR1, SIG_IGN);
              const LauncherWatch watch(under_torchrun(), 0.5, "start it again");
              close(launcher_may_go);
              sleep(20);
              return 1;
            }),
            static_cast<int>(ExitCode::kEnvironment));
}

TEST(LauncherWatch, WhatWasStartedByHandIsNobodys) {
  EXPECT_EQ(with_launcher_that_dies([](int launcher_may_go) {
              LaunchContext by_hand = under_torchrun();
              by_hand.run_id = "";
              const LauncherWatch ranks_by_hand(by_hand, 0, "");
              const LauncherWatch alone(LaunchContext{}, 0, "");
              close(launcher_may_go);
              sleep(2);
              return 42;
            }),
            42);
}

}  // namespace
}  // namespace adtrain
