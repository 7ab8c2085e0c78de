#include <filesystem>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "data/HistoryFile.h"

namespace adtrain {
namespace {

const std::filesystem::path kFile =
    std::filesystem::path(ADTRAIN_SOURCE_DIR) / "data" / "history_darkroom_PPO_alg-seed0.hdf5";
constexpr int64_t kEpisode = 20;  ///< steps
constexpr int64_t kEpisodes = 50;

/// The sum of rewards in each episode, over all streams of a history.
std::vector<double> returns_of(const History& history, int64_t streams) {
  std::vector<double> returns(kEpisodes);
  for (int64_t episode = 0; episode < kEpisodes; ++episode) {
    const auto begin = history.rewards.begin() + episode * kEpisode * streams;
    returns[static_cast<size_t>(episode)] = std::accumulate(begin, begin + kEpisode * streams, 0.0);
  }
  return returns;
}

TEST(ShippedHistories, AreSmall) {
  EXPECT_LT(std::filesystem::file_size(kFile), 1'000'000U);
}

/// Every task and value is read and checked; the figures are those of data/README.md.
TEST(ShippedHistories, LearnAsTheirCardSays) {
  const HistoryFile file(kFile);
  ASSERT_EQ(file.tasks().text(), "0-48");
  ASSERT_EQ(file.steps(), kEpisodes * kEpisode);
  ASSERT_EQ(file.streams(), 4);
  EXPECT_EQ(file.settings().at("env"), "darkroom");
  EXPECT_EQ(file.settings().at("grid_size"), "7");
  double first = 0, last_ten = 0;
  for (const int64_t task : file.tasks().numbers()) {
    const History history = file.read(task, file.steps(), file.streams(), {.grid_size = 7, .num_actions = 5});
    const std::vector<double> returns = returns_of(history, file.streams());
    first += returns.front();
    last_ten += std::accumulate(returns.end() - 10, returns.end(), 0.0) / 10;
  }
  const double histories = static_cast<double>(file.tasks().count() * file.streams());
  EXPECT_NEAR(first / histories, 0.39, 0.005);
  EXPECT_NEAR(last_ten / histories, 17.30, 0.005);
}

}  // namespace
}  // namespace adtrain
