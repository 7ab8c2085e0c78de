#include "watchdog/StartWatch.h"

#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/Error.h"
#include "launch/HeldTermination.h"
#include "support/RankOfTwo.h"
#include "support/Sleeper.h"

namespace adtrain {
namespace {

/// Rank 0 of two whose start never comes to its end; rank 1 is what `act` makes of it.
void start_for_ever(double timeout_seconds, double silent_seconds, bool has_rank_1,
                    const std::function<void(Sleeper*)>& act) {
  const std::string port = std::to_string(getpid());
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port.c_str(), 1);
  setenv("RANK", "0", 1);
  const Sleeper myself({"RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port});
  std::optional<Sleeper> other;
  if (has_rank_1)
    other.emplace(std::vector<std::string>{"RANK=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port});
  DistributedOptions options;
  options.rendezvous_timeout_seconds = timeout_seconds;
  options.silent_rank_seconds = silent_seconds;
  StartWatch watch(rank_of_two(0, 1), options,
                   [](const Failure& first) { fmt::print(stderr, "{}", first.block()); });
  watch.waits("for the test", "end it");
  usleep(1'200'000);
  act(other ? &*other : nullptr);
  sleep(60);
}

TEST(StartWatchDeathTest, AStartThatTakesTooLongEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_for_ever(0.5, 30, true, [](Sleeper*) {}), testing::ExitedWithCode(3),
              "Rank 0 of 2 has waited 0.5 s for the test; end it");
}

TEST(StartWatchDeathTest, ARankThatIsNotThereIsNamedWhenTheLauncherEndsTheOthers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_for_ever(60, 30, false, [](Sleeper*) { kill(getpid(), SIGTERM); }),
              testing::KilledBySignal(SIGTERM), "rank 1 of 2 failed first.*\n.*\n.*\n.*has ended before");
}

TEST(StartWatchDeathTest, ARankWhoseProcessEndsIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_for_ever(60, 30, true, [](Sleeper* other) { other->end(); }), testing::ExitedWithCode(7),
              "rank 1 of 2 failed first.*\n.*process [1-9].*\n.*\n.*has ended before");
}

TEST(StartWatchDeathTest, ARankWhoseProcessIsStoppedIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_for_ever(60, 1, true, [](Sleeper* other) { kill(other->process(), SIGSTOP); }),
              testing::ExitedWithCode(7), "rank 1 of 2 failed first.*\n.*\n.*\n.*its process is stopped");
}

TEST(StartWatchDeathTest, ATerminationThatNobodyIsToBlameForEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_for_ever(60, 30, true, [](Sleeper*) { kill(getpid(), SIGTERM); }),
              testing::KilledBySignal(SIGTERM), "^$");
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
