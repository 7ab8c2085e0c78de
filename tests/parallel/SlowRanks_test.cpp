#include "parallel/SlowRanks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Turn = SlowRankWatch::Turn;

/// Ten seconds in which the ranks wait for each other in these shares of the time.
std::vector<RankTimes> waiting(const std::vector<double>& shares) {
  std::vector<RankTimes> times;
  for (const double share : shares) times.push_back({.total = 10, .waited = 10 * share});
  return times;
}

std::vector<int64_t> slow_of(const std::vector<double>& shares) {
  return find_slow_ranks(waiting(shares)).slow_ranks;
}

TEST(SlowRanks, EqualRanksAreNotSlow) {
  EXPECT_FALSE(find_slow_ranks(waiting({0, 0, 0, 0})).remarkable());
  EXPECT_FALSE(find_slow_ranks(waiting({0.03, 0.05, 0.02, 0.04})).remarkable());
  EXPECT_FALSE(find_slow_ranks(waiting({0.2, 0.2, 0.2})).remarkable());
}

TEST(SlowRanks, ASingleRankIsNotSlow) {
  EXPECT_FALSE(find_slow_ranks(waiting({0})).remarkable());
  EXPECT_FALSE(find_slow_ranks(waiting({0.9})).remarkable());
  EXPECT_FALSE(find_slow_ranks({}).remarkable());
}

TEST(SlowRanks, TheOneThatTheOthersWaitForIsSlow) {
  const PaceFinding finding = find_slow_ranks(waiting({0.31, 0.30, 0.29, 0.01}));
  EXPECT_THAT(finding.slow_ranks, ElementsAre(3));
  EXPECT_NEAR(finding.lost_share, 0.29, 1e-9);
  EXPECT_EQ(finding.communication_share, 0);
  EXPECT_THAT(slow_of({0.02, 0.5}), ElementsAre(0));
  EXPECT_THAT(slow_of({0.5, 0.02}), ElementsAre(1));
}

TEST(SlowRanks, ASlowNetworkHidesNoSlowRank) {
  EXPECT_THAT(slow_of({0.55, 0.54, 0.30, 0.56}), ElementsAre(2));
}

TEST(SlowRanks, LittleIsNotWorthAWord) {
  EXPECT_THAT(slow_of({0.08, 0.08, 0.08, 0}), IsEmpty());
}

TEST(SlowRanks, SeveralMayBeSlow) {
  const PaceFinding finding = find_slow_ranks(waiting({0.4, 0.02, 0.41, 0.03, 0.39}));
  EXPECT_THAT(finding.slow_ranks, ElementsAre(1, 3));
  EXPECT_NEAR(finding.lost_share, 0.375, 1e-9);
  EXPECT_THAT(slow_of({0.02, 0.4, 0.03, 0.4}), ElementsAre(0, 2)) << "half of them";
}

TEST(SlowRanks, OneFastRankMakesTheOthersNotSlow) {
  EXPECT_THAT(slow_of({0.02, 0.4, 0.03, 0.02}), IsEmpty());
}

TEST(SlowRanks, WhereAllWaitAlikeItIsCommunication) {
  const PaceFinding finding = find_slow_ranks(waiting({0.42, 0.45, 0.43}));
  EXPECT_THAT(finding.slow_ranks, IsEmpty());
  EXPECT_NEAR(finding.communication_share, 0.42, 1e-9);
  EXPECT_EQ(find_slow_ranks(waiting({0.52, 0.38, 0.55})).slow_ranks, std::vector<int64_t>())
      << "slow communication is uneven, too";
}

TEST(SlowRanks, TimeThatDidNotPassAccusesNobody) {
  EXPECT_FALSE(find_slow_ranks({{.total = 0, .waited = 0}, {.total = 0, .waited = 0}}).remarkable());
}

/// Adds windows of ten seconds, one a report.
struct Watched {
  explicit Watched(int64_t agreeing_windows = 2) : watch(agreeing_windows) {}
  Turn sees(const std::vector<double>& shares) { return watch.add(waiting(shares)); }
  std::vector<int64_t> slow() const { return watch.found().slow_ranks; }
  SlowRankWatch watch;
};
const std::vector<double> kEven = {0.02, 0.03, 0.02}, kFirst = {0.01, 0.4, 0.4}, kLast = {0.4, 0.4, 0.01};

TEST(SlowRankWatch, TheFirstWindowDoesNotCount) {
  Watched watched;
  EXPECT_EQ(watched.sees(kLast), Turn::kNone);
  EXPECT_EQ(watched.sees(kLast), Turn::kSuspicion);
  EXPECT_EQ(watched.sees(kLast), Turn::kBegins);
  EXPECT_THAT(watched.slow(), ElementsAre(2));
}

TEST(SlowRankWatch, OneOddWindowAccusesNobody) {
  Watched watched;
  watched.sees(kEven);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(watched.sees(kLast), Turn::kSuspicion);
    EXPECT_EQ(watched.sees(kEven), Turn::kNone);
  }
  EXPECT_THAT(watched.slow(), IsEmpty());
}

TEST(SlowRankWatch, WindowsThatDisagreeAccuseNobody) {
  Watched watched;
  watched.sees(kEven);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(watched.sees(kFirst), Turn::kSuspicion);
    EXPECT_EQ(watched.sees(kLast), Turn::kSuspicion);
  }
  EXPECT_THAT(watched.slow(), IsEmpty());
}

TEST(SlowRankWatch, TellsBeginningAndEndOnce) {
  Watched watched;
  watched.sees(kEven);
  watched.sees(kLast);
  EXPECT_EQ(watched.sees(kLast), Turn::kBegins);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(watched.sees(kLast), Turn::kNone);
  EXPECT_EQ(watched.sees(kEven), Turn::kSuspicion) << "one good window ends nothing";
  EXPECT_EQ(watched.sees(kLast), Turn::kNone);
  EXPECT_THAT(watched.slow(), ElementsAre(2));
  EXPECT_EQ(watched.sees(kEven), Turn::kSuspicion);
  EXPECT_EQ(watched.sees(kEven), Turn::kEnds);
  EXPECT_THAT(watched.slow(), IsEmpty());
  EXPECT_EQ(watched.sees(kEven), Turn::kNone);
}

TEST(SlowRankWatch, AnotherRankIsAnotherFinding) {
  Watched watched;
  watched.sees(kEven);
  watched.sees(kLast);
  watched.sees(kLast);
  EXPECT_EQ(watched.sees(kFirst), Turn::kSuspicion);
  EXPECT_EQ(watched.sees(kFirst), Turn::kBegins);
  EXPECT_THAT(watched.slow(), ElementsAre(0));
}

TEST(SlowRankWatch, WhoIsSlowInAllWindowsIsNamedAlone) {
  const std::vector<double> two = {0.01, 0.4, 0.02, 0.4}, one = {0.01, 0.4, 0.4, 0.4};
  Watched watched;
  watched.sees(two);
  watched.sees(two);
  EXPECT_EQ(watched.sees(one), Turn::kBegins);
  EXPECT_THAT(watched.slow(), ElementsAre(0));
  EXPECT_EQ(watched.sees(two), Turn::kSuspicion);
  EXPECT_EQ(watched.sees(one), Turn::kNone);
  EXPECT_THAT(watched.slow(), ElementsAre(0));
}

TEST(SlowRankWatch, FiguresStayCurrent) {
  Watched watched;
  watched.sees(kEven);
  watched.sees(kLast);
  watched.sees(kLast);
  EXPECT_NEAR(watched.watch.found().lost_share, 0.39, 1e-9);
  EXPECT_EQ(watched.sees({0.6, 0.6, 0.01}), Turn::kNone);
  EXPECT_NEAR(watched.watch.found().lost_share, 0.59, 1e-9);
}

TEST(SlowRankWatch, CommunicationIsTold) {
  Watched watched;
  const std::vector<double> all = {0.5, 0.5, 0.5};
  watched.sees(all);
  watched.sees(all);
  EXPECT_EQ(watched.sees(all), Turn::kBegins);
  EXPECT_NEAR(watched.watch.found().communication_share, 0.5, 1e-9);
  watched.sees(kEven);
  EXPECT_EQ(watched.sees(kEven), Turn::kEnds);
}

TEST(SlowRankWatch, MoreWindowsMayHaveToAgree) {
  Watched watched(3);
  watched.sees(kEven);
  EXPECT_EQ(watched.sees(kLast), Turn::kSuspicion);
  EXPECT_EQ(watched.sees(kLast), Turn::kNone);
  EXPECT_EQ(watched.sees(kLast), Turn::kBegins);
}

/// Reports that come often are added up: 100 of a tenth of a second are two windows.
TEST(SlowRankWatch, ShortReportsAreAddedUp) {
  SlowRankWatch watch(2);
  const std::vector<RankTimes> tenth = {{.total = 0.1, .waited = 0.05}, {.total = 0.1, .waited = 0}};
  std::vector<Turn> turns;
  for (int i = 0; i < 160; ++i) {
    const Turn turn = watch.add(tenth);
    if (turn != Turn::kNone) turns.push_back(turn);
  }
  EXPECT_THAT(turns, ElementsAre(Turn::kSuspicion, Turn::kBegins));
  EXPECT_THAT(watch.found().slow_ranks, ElementsAre(1));
  EXPECT_NEAR(watch.window().front().total, SlowRankWatch::kWindowSeconds, 0.2);
}

}  // namespace
}  // namespace adtrain
