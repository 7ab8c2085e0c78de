#include "launch/LocalRanks.h"

#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/ProcessTable.h"
#include "support/RankOfTwo.h"
#include "support/Sleeper.h"

namespace adtrain {
namespace {

using testing::ElementsAre;

/// This process is rank 0 of a launch that nobody else has: its own id is the port.
class LocalRanksOfThisProcess : public testing::Test {
 protected:
  LocalRanksOfThisProcess() = default;
  ~LocalRanksOfThisProcess() override {
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
  }

  std::vector<std::string> as_rank(int64_t rank) const {
    return {"RANK=" + std::to_string(rank), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port_};
  }
  /// Starting takes a moment.
  static void wait_until(const std::function<bool()>& holds) {
    const Deadline deadline(20);
    while (!holds() && !deadline.passed()) usleep(10'000);
  }

  std::string port_ = std::to_string(getpid());
  LocalRanks ranks_{[this] {
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port_.c_str(), 1);
    return LocalRanks(rank_of_two(0, 1));
  }()};
};

TEST_F(LocalRanksOfThisProcess, AreSeenByTheirProcesses) {
  Sleeper rank(as_rank(1));
  const Sleeper of_another_launch({"RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"});
  wait_until([&] { return !ranks_.look().empty(); });
  const auto seen = ranks_.look();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen.at(1).process, rank.process());
  EXPECT_FALSE(seen.at(1).stopped);
  rank.end();
  EXPECT_TRUE(ranks_.look().empty());
}

TEST_F(LocalRanksOfThisProcess, AreSeenToBeStopped) {
  const Sleeper script(as_rank(1)), rank(as_rank(1));
  wait_until([&] { return environment_of_process(rank.process()).contains("RANK"); });
  kill(rank.process(), SIGSTOP);
  wait_until([&] { return ranks_.look().at(1).stopped; });
  EXPECT_TRUE(ranks_.look().at(1).stopped);
  EXPECT_EQ(ranks_.look().at(1).process, rank.process());
  kill(rank.process(), SIGCONT);
  wait_until([&] { return !ranks_.look().at(1).stopped; });
  EXPECT_FALSE(ranks_.look().at(1).stopped);
}

TEST_F(LocalRanksOfThisProcess, OneThatHasEndedAndIsNotCollectedIsNotThere) {
  const Sleeper rank(as_rank(1));
  wait_until([&] { return ranks_.look().contains(1); });
  kill(rank.process(), SIGKILL);
  wait_until([&] { return !ranks_.look().contains(1); });
  EXPECT_FALSE(ranks_.look().contains(1));
}

TEST_F(LocalRanksOfThisProcess, TheirLauncherIsTheNearestAncestorThatIsNone) {
  EXPECT_EQ(ranks_.launcher(), getppid());
  EXPECT_THAT(ranks_.expected(), ElementsAre(0, 1));
}

TEST(LocalRanks, ASingleProcessHasNoneAndNoLauncher) {
  const LocalRanks ranks{LaunchContext{}};
  EXPECT_TRUE(ranks.look().empty());
  EXPECT_EQ(ranks.launcher(), std::nullopt);
}

TEST(ProcessTable, ThisProcessRunsAndHasItsEnvironment) {
  const auto status = status_of_process(getpid());
  ASSERT_TRUE(status);
  EXPECT_FALSE(status->ended() || status->stopped());
  EXPECT_EQ(status->parent, getppid());
  EXPECT_GT(status->started, 0U);
  EXPECT_EQ(environment_of_process(getpid()).at("PATH"), std::getenv("PATH"));
  EXPECT_EQ(status_of_process(0), std::nullopt);
}

}  // namespace
}  // namespace adtrain
