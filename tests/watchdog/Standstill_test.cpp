#include "watchdog/Standstill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "watchdog/WatchMessage.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Rank after rank, what each waits in and after which step.
std::vector<StandingRank> ranks_in(const std::vector<std::pair<const char*, int64_t>>& places) {
  std::vector<StandingRank> ranks;
  for (const auto& [operation, step] : places) {
    const auto rank = static_cast<int64_t>(ranks.size());
    ranks.push_back({{rank, static_cast<int64_t>(places.size()), "n1", 100 + rank, 0},
                     {.phase = "training", .step = step, .waits_in = operation, .seconds = 600}});
  }
  return ranks;
}

TEST(Standstill, NamesTheRankThatWaitsInAnotherOperation) {
  const Failure found =
      standstill(ranks_in({{"an all-reduce", 12}, {"an all-reduce", 12}, {"a broadcast", 12}}));
  EXPECT_EQ(found.who.rank, 2);
  EXPECT_EQ(found.code, ExitCode::kPeerLost);
  EXPECT_THAT(found.block(),
              AllOf(HasSubstr("rank 2 of 3 failed first"), HasSubstr("waited elsewhere"),
                    HasSubstr("ranks 0-1: training after step 12, waiting in an all-reduce for 10 min 00 s"),
                    HasSubstr("rank 2: training after step 12, waiting in a broadcast"),
                    HasSubstr("process 102 on n1"), HasSubstr("adtrain test"), HasSubstr("nvidia-smi")));
}

TEST(Standstill, NamesTheRankThatWaitsAfterAnotherStep) {
  EXPECT_EQ(standstill(ranks_in({{"a barrier", 11}, {"a barrier", 12}, {"a barrier", 12}})).who.rank, 0);
}

TEST(Standstill, NamesNobodyWhereNoneDiffersFromMost) {
  for (const auto& ranks :
       {ranks_in({{"a barrier", 12}, {"a barrier", 12}, {"a barrier", 12}}),
        ranks_in({{"a barrier", 12}, {"a broadcast", 12}}), ranks_in({{"a barrier", 12}, {"", 11}, {"", 12}}),
        ranks_in({{"a barrier", 12}, {"a barrier", 12}, {"a broadcast", 12}, {"a broadcast", 12}}),
        ranks_in({{"a barrier", 12}, {"a barrier", 12}, {"", 11}}),
        ranks_in({{"a barrier", 12}, {"a broadcast", 12}, {"a broadcast", 12}})}) {  // the root leaves first
    const Failure found = standstill(ranks);
    EXPECT_EQ(found.who.rank, RankIdentity::kNobody) << found.error;
    EXPECT_EQ(found.code, ExitCode::kPeerLost);
    EXPECT_THAT(found.block(), AllOf(Not(HasSubstr("failed first")), HasSubstr("waiting in a barrier"),
                                     HasSubstr("waited for each other in vain")));
  }
}

TEST(Standstill, SaysHowLongTheShortestAndTheLongestHaveWaited) {
  auto ranks = ranks_in({{"a barrier", 12}, {"a barrier", 12}, {"a barrier", 12}});
  ranks[1].doing.seconds = 4;
  EXPECT_THAT(standstill(ranks).error, HasSubstr("waiting in a barrier for 4.0 s to 10 min 00 s"));
}

TEST(Standstill, ThatNobodyIsNamedTravelsToAllRanks) {
  const Failure found = standstill(ranks_in({{"a barrier", 12}, {"a barrier", 12}}));
  const auto received = read_watch_message(line_of(Verdict{found}));
  ASSERT_TRUE(received);
  EXPECT_EQ(std::get<Verdict>(*received).failure.block(), found.block());
}

}  // namespace
}  // namespace adtrain
