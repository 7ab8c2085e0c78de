#include "watchdog/LastDeadline.h"

#include <csignal>
#include <cstdio>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/Clock.h"
#include "support/ThreadSanitizer.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

/// How a process ends whose main thread waits for ever in `hang` when the deadline is armed.
template <class Hang>
int end_of_process(double seconds_at_work, double seconds_of_waiting, Hang hang) {
  const pid_t child = fork();
  if (child == 0) {
    LastDeadline deadline;
    deadline.arm(ExitCode::kPeerLost, seconds_at_work, seconds_of_waiting);
    hang();
    _exit(0);
  }
  int status = 0;
  const Stopwatch watch;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (watch.seconds() > 60) kill(child, SIGKILL);
    usleep(10'000);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

constexpr double kNever = 86400;

/// The main thread holds the lock of standard output and waits in it for a reader.
TEST(LastDeadline, EndsAProcessThatHangsInAFullPipe) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer's _exit flushes standard output, and hangs in it";
  EXPECT_EQ(end_of_process(0.5, kNever,
                           [] {
                             int ends[2];
                             if (pipe(ends) != 0) return;
                             dup2(ends[1], STDOUT_FILENO);
                             for (;;) {
                               std::fputs("nobody reads this\n", stdout);
                               std::fflush(stdout);
                             }
                           }),
            7);
}

TEST(LastDeadline, IsAnotherForAProcessThatWaitsForOthers) {
  EXPECT_EQ(end_of_process(kNever, 0.5,
                           [] {
                             const Activity::Waiting waiting("a barrier");
                             for (;;) pause();
                           }),
            7);
}

TEST(LastDeadline, DoesNotHarmAProcessThatEndsInTime) {
  EXPECT_EQ(end_of_process(kNever, kNever, [] {}), 0);
  const LastDeadline never_armed;
}

}  // namespace
}  // namespace adtrain
