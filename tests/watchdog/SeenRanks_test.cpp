#include "watchdog/SeenRanks.h"

#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "base/Clock.h"
#include "launch/LaunchContext.h"
#include "support/Sleeper.h"

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Ranks 0 to 2 of a launch that nobody else has: this process's id is the port. All were seen.
class SeenRanksOfThree : public testing::Test {
 protected:
  SeenRanksOfThree() {
    for (int64_t rank = 0; rank < 3; ++rank) begin(rank);
    until_seen([this] { return ranks_->ranks().size() == 3 && ranks_->gone().empty(); });
  }
  ~SeenRanksOfThree() override {
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
  }

  static LaunchContext launch() {
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(getpid()).c_str(), 1);
    LaunchContext context;
    context.world_size = context.local_world_size = 3;
    context.launcher = Launcher::kTorchrun;
    return context;
  }
  void begin(int64_t rank) {
    process_[rank].emplace(std::vector<std::string>{"RANK=" + std::to_string(rank), "MASTER_ADDR=127.0.0.1",
                                                    "MASTER_PORT=" + std::to_string(getpid())});
  }
  void until_seen(const std::function<bool()>& holds) {
    const Deadline deadline(20);
    do {
      ranks_->look();
    } while (!holds() && !deadline.passed() && usleep(10'000) == 0);
    ASSERT_TRUE(holds());
  }
  /// How many of the descriptors are readable within `milliseconds`.
  int readable(int milliseconds) const {
    std::vector<pollfd> events;
    for (const int process : ranks_->descriptors()) events.push_back({process, POLLIN, 0});
    return poll(events.data(), events.size(), milliseconds);
  }

  std::optional<SeenRanks> ranks_{launch()};
  std::optional<Sleeper> process_[3];
};

TEST_F(SeenRanksOfThree, TheFirstThatHasGoneComesFirst) {
  process_[2]->end();
  ranks_->look();
  process_[0]->end();
  ranks_->look();
  EXPECT_THAT(ranks_->gone(), ElementsAre(2, 0));
  EXPECT_GT(ranks_->ranks().at(2).process, 0);
  EXPECT_GE(ranks_->ranks().at(2).gone->seconds(), ranks_->ranks().at(0).gone->seconds());
}

TEST_F(SeenRanksOfThree, OneThatComesBackIsNotGone) {
  process_[0]->end();
  ranks_->look();
  EXPECT_THAT(ranks_->gone(), ElementsAre(0));
  begin(0);
  until_seen([this] { return ranks_->gone().empty(); });
  EXPECT_FALSE(ranks_->ranks().at(0).gone);
  EXPECT_EQ(ranks_->ranks().at(0).process, process_[0]->process());
  EXPECT_EQ(readable(0), 0);
}

TEST_F(SeenRanksOfThree, ADescriptorTellsOfAnEndOnce) {
  EXPECT_EQ(readable(0), 0);
  process_[1]->end();
  EXPECT_EQ(readable(5000), 1);
  ranks_->look();
  EXPECT_EQ(ranks_->descriptors().size(), 2U);
  EXPECT_EQ(readable(0), 0);
}

TEST_F(SeenRanksOfThree, AStoppedOneIsThere) {
  kill(process_[1]->process(), SIGSTOP);
  until_seen([this] { return ranks_->ranks().at(1).stopped.has_value(); });
  EXPECT_THAT(ranks_->gone(), IsEmpty());
  kill(process_[1]->process(), SIGCONT);
  until_seen([this] { return !ranks_->ranks().at(1).stopped; });
}

TEST_F(SeenRanksOfThree, OneThatWasNeverSeenTookTheOthersAlongOnlyWhereItWasMissingLongBefore) {
  constexpr double kGone = 1;
  const auto of_two = [this](bool waits) {
    ranks_.emplace(launch());
    until_seen([this] { return ranks_->gone() == std::vector<int64_t>{0}; });
    EXPECT_EQ(ranks_->gone_for(kGone), std::nullopt) << "it may come yet";
    if (waits) usleep(1'500'000);
    ranks_->look();
    process_[1]->end();
    until_seen([this] { return ranks_->gone_for(kGone).has_value(); });
    return ranks_->gone_for(kGone);
  };
  process_[0]->end();
  EXPECT_EQ(of_two(/*waits=*/true), 0);
  begin(1);
  EXPECT_EQ(of_two(/*waits=*/false), 1);
}

TEST(SeenRanks, OneThatIsExpectedAndWasNeverThereHasGoneWithoutAProcess) {
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(getpid()).c_str(), 1);  // of no other launch here
  LaunchContext context;
  context.world_size = context.local_world_size = 2;
  context.launcher = Launcher::kTorchrun;
  SeenRanks ranks(context);
  ranks.look();
  EXPECT_THAT(ranks.gone(), ElementsAre(0, 1));
  EXPECT_EQ(ranks.ranks().at(1).process, 0);
  unsetenv("MASTER_ADDR");
  unsetenv("MASTER_PORT");
}

}  // namespace
}  // namespace adtrain
