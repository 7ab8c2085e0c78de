#include "base/RunningTime.h"

#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace adtrain {
namespace {

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TEST(RunningTime, CountsWhatPassesBetweenLooks) {
  RunningTime time;
  const Stopwatch watch;
  while (watch.seconds() < 0.5) {
    sleep_seconds(0.01);
    time.look();
  }
  EXPECT_LE(time.seconds(), watch.seconds());
  EXPECT_GT(time.seconds(), 0.3);
}

TEST(RunningTime, OfTwoLooksThatLieFarApartLittleCounts) {
  RunningTime time;
  sleep_seconds(1.5);
  EXPECT_DOUBLE_EQ(time.look(), RunningTime::kMostBetweenLooks);
  EXPECT_GE(time.gap(), 1.5);
}

/// A process with a deadline of two seconds is stopped for three: its deadline passes two seconds of running
/// after it began.
TEST(RunningTime, ADeadlineDoesNotComeNearerWhileTheProcessIsStopped) {
  const Stopwatch watch;
  const pid_t child = fork();
  if (child == 0) {
    RunningDeadline deadline(2);
    while (!deadline.passed()) usleep(10'000);
    _exit(0);
  }
  sleep_seconds(0.5);
  kill(child, SIGSTOP);
  sleep_seconds(3);
  kill(child, SIGCONT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_GE(watch.seconds(), 0.5 + 3 + 2 - 0.5 - RunningTime::kMostBetweenLooks);
}

}  // namespace
}  // namespace adtrain
