#include "watchdog/StartWatch.h"

#include <csignal>
#include <cstdlib>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/Error.h"
#include "support/RankOfTwo.h"
#include "support/Sleeper.h"

namespace adtrain {
namespace {

using Others = std::deque<Sleeper>;

/// Rank 0 of `world_size` whose start never comes to its end; of the others, the first `there` have a
/// process, and are what `act` makes of them.
void start_for_ever(double timeout_seconds, double silent_seconds, int64_t world_size, int64_t there,
                    const std::function<void(Others&)>& act) {
  const std::string port = std::to_string(getpid());
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port.c_str(), 1);
  setenv("RANK", "0", 1);
  const auto variables = [&port](int64_t rank) {
    return std::vector<std::string>{fmt::format("RANK={}", rank), "MASTER_ADDR=127.0.0.1",
                                    "MASTER_PORT=" + port};
  };
  const Sleeper myself(variables(0));
  Others others;
  for (int64_t rank = 1; rank <= there; ++rank) others.emplace_back(variables(rank));
  DistributedOptions options;
  options.rendezvous_timeout_seconds = timeout_seconds;
  options.silent_rank_seconds = silent_seconds;
  LaunchContext context = rank_of_two(0, 1);
  context.world_size = context.local_world_size = world_size;
  StartWatch watch(context, options, [](const Failure& first) { fmt::print(stderr, "{}", first.block()); });
  watch.waits("for the test", "end it");
  usleep(1'200'000);
  act(others);
  sleep(60);
}

TEST(StartWatchDeathTest, AStartThatTakesTooLongEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_for_ever(0.5, 30, 2, 1, [](Others&) {}), testing::ExitedWithCode(3),
              "Rank 0 of 2 has waited 0.5 s for the test; end it");
}

TEST(StartWatchDeathTest, ARankThatIsNotThereIsNamedWhenTheLauncherEndsTheOthers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_for_ever(60, 30, 2, 0, [](Others&) { kill(getpid(), SIGTERM); }),
              testing::KilledBySignal(SIGTERM), "rank 1 of 2 failed first.*\n.*\n.*\n.*has ended before");
}

TEST(StartWatchDeathTest, ARankWhoseProcessEndsIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_for_ever(60, 30, 2, 1, [](Others& others) { others[0].end(); }),
              testing::ExitedWithCode(7),
              "rank 1 of 2 failed first.*\n.*process [1-9].*\n.*\n.*has ended before");
}

TEST(StartWatchDeathTest, TheFirstOfTwoWhoseProcessesEndIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end_the_last_first = [](Others& others) {
    others[1].end();
    usleep(700'000);
    others[0].end();
    kill(getpid(), SIGTERM);
  };
  // The signal ends it, or the watch does where that comes late.
  const auto ends = [](int status) {
    return testing::KilledBySignal(SIGTERM)(status) || testing::ExitedWithCode(7)(status);
  };
  EXPECT_EXIT(start_for_ever(60, 30, 3, 2, end_the_last_first), ends,
              "rank 2 of 3 failed first.*\n.*process [1-9].*\n.*\n.*has ended before");
}

TEST(StartWatchDeathTest, ARankWhoseProcessIsStoppedIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_for_ever(60, 1, 2, 1, [](Others& others) { kill(others[0].process(), SIGSTOP); }),
              testing::ExitedWithCode(7), "rank 1 of 2 failed first.*\n.*\n.*\n.*its process is stopped");
}

TEST(StartWatchDeathTest, ATerminationThatNobodyIsToBlameForEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_for_ever(60, 30, 2, 1, [](Others&) { kill(getpid(), SIGTERM); }),
              testing::KilledBySignal(SIGTERM), "^$");
}

}  // namespace
}  // namespace adtrain
