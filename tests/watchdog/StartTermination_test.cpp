// SIGTERM while a rank starts: what a StartWatch makes of it.

#include <csignal>
#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "collectives/StopRequest.h"
#include "launch/HeldTermination.h"
#include "support/RankOfTwo.h"
#include "watchdog/StartWatch.h"

namespace adtrain {
namespace {

/// A rank that knows nothing of others' processes, as where each has a host of its own; `act` is what happens
/// to it. Ends with exit code 75 where it comes to its end.
void start_on_a_host_of_its_own(const std::function<void(StartWatch&)>& act, double leave_within = 2.5) {
  LaunchContext context = rank_of_two(0, 1);
  context.launcher = Launcher::kFlags;
  DistributedOptions options;
  options.leave_within_seconds = leave_within;
  {
    StartWatch watch(context, options, [](const Failure& first) { fmt::print(stderr, "{}", first.block()); });
    watch.waits("for the test", "end it");
    act(watch);
  }
  _exit(75);
}

TEST(StartTerminationDeathTest, ATerminationOnceAllHaveMetIsLeftToAStopRequest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stop_late = [](StartWatch& watch) {
    watch.nobody_is_waited_for();
    kill(getpid(), SIGTERM);
    usleep(2'200'000);
    const StopRequest stop;
    usleep(200'000);
    fmt::print(stderr, "asked by {}", StopRequest::signal_number());
  };
  EXPECT_EXIT(start_on_a_host_of_its_own(stop_late, 20), testing::ExitedWithCode(75), "^asked by 15$");
}

TEST(StartTerminationDeathTest, ATerminationIsHeldWhereAllMeetBeforeItEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto meet_late = [](StartWatch& watch) {
    kill(getpid(), SIGTERM);
    usleep(1'400'000);
    watch.nobody_is_waited_for();
    usleep(800'000);
    const StopRequest stop;
    fmt::print(stderr, "asked by {}", StopRequest::signal_number());
  };
  EXPECT_EXIT(start_on_a_host_of_its_own(meet_late), testing::ExitedWithCode(75), "^asked by 15$");
}

TEST(StartTerminationDeathTest, ATerminationThatNoStopRequestTakesEndsTheProcessInTime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto work_on = [](StartWatch& watch) {
    watch.nobody_is_waited_for();
    raise(SIGTERM);
    { const StopRequest over_at_once; }
    raise(SIGTERM);
    sleep(8);
  };
  EXPECT_EXIT(start_on_a_host_of_its_own(work_on), testing::KilledBySignal(SIGTERM), "^$");
}

TEST(StartTerminationDeathTest, ATerminationThatComesAtTheEndDoesNotReplaceTheExitCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [](StartWatch& watch) {
    watch.nobody_is_waited_for();
    raise(SIGTERM);
  };
  EXPECT_EXIT(start_on_a_host_of_its_own(end), testing::ExitedWithCode(75), "^$");
}

TEST(StartTerminationDeathTest, OfRanksThatATerminationEndsTogetherNoneIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hear_of_another_end = [](StartWatch& watch) {
    kill(getpid(), SIGTERM);
    usleep(1'800'000);  // between the verdict and the end; after the end, too, nobody is named
    watch.tell(Failure::gone({1, 2, "", 0}, {}));
    sleep(8);
  };
  EXPECT_EXIT(start_on_a_host_of_its_own(hear_of_another_end), testing::KilledBySignal(SIGTERM), "^$");
}

TEST(HeldTerminationDeathTest, OneThatCameWhileItWasHeldIsNotLost) {
  EXPECT_EXIT(
      {
        held_termination::begin();
        raise(SIGTERM);
        fmt::print(stderr, "still here");
        held_termination::release();
        fmt::print(stderr, ", and for ever");
      },
      testing::KilledBySignal(SIGTERM), "^still here$");
}

}  // namespace
}  // namespace adtrain
