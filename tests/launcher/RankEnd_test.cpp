#include "launcher/RankEnd.h"

#include <csignal>

#include <gtest/gtest.h>

namespace adtrain {
namespace {

RankEnd left(int64_t rank, int exit_code) {
  RankEnd end;
  end.rank = rank;
  end.exit_code = exit_code;
  return end;
}

RankEnd ended_by(int64_t rank, int signal) {
  RankEnd end = left(rank, 128 + signal);
  end.signal = signal;
  return end;
}

/// By the launcher, as it did not end when it was asked to.
RankEnd killed(int64_t rank) {
  RankEnd end = ended_by(rank, SIGKILL);
  end.asked = end.killed = true;
  return end;
}

int64_t rank_at_fault(const std::vector<RankEnd>& ends) {
  const RankEnd* cause = cause_of_failure(ends);
  return cause == nullptr ? -1 : cause->rank;
}

TEST(RankEnd, IsReadFromAWaitStatus) {
  const RankEnd by_code = RankEnd::of(3, 6 << 8);
  EXPECT_EQ(by_code.exit_code, 6);
  EXPECT_EQ(by_code.signal, 0);
  EXPECT_EQ(by_code.text(), "exit code 6 (the loss became NaN or infinite)");
  const RankEnd by_signal = RankEnd::of(3, SIGKILL);
  EXPECT_EQ(by_signal.exit_code, 137);
  EXPECT_EQ(by_signal.text(), "SIGKILL (signal 9: Killed)");
}

TEST(RankEnd, NobodyIsAtFaultWhereAllAreDoneOrStoppedOnRequest) {
  EXPECT_EQ(rank_at_fault({left(1, 0), left(0, 0)}), -1);
  EXPECT_EQ(rank_at_fault({left(1, 75), left(0, 75)}), -1);
}

TEST(RankEnd, TheFirstFailureIsTheCause) {
  EXPECT_EQ(rank_at_fault({left(2, 0), left(1, 4), left(0, 6)}), 1);
}

TEST(RankEnd, ALostPeerIsAConsequenceEvenWhereItIsSeenFirst) {
  EXPECT_EQ(rank_at_fault({left(0, 7), ended_by(2, SIGKILL), left(1, 7)}), 2);
}

TEST(RankEnd, AsTheLauncherWantedItIsNoFault) {
  RankEnd as_asked = ended_by(2, SIGTERM);
  as_asked.asked = true;
  EXPECT_EQ(rank_at_fault({left(0, 7), as_asked, left(1, 7)}), 0);
  RankEnd for_its_own_reason = left(2, 5);
  for_its_own_reason.asked = true;
  EXPECT_EQ(rank_at_fault({left(0, 7), for_its_own_reason}), 2);
}

TEST(RankEnd, WhereAllLostAPeerTheRankThatLeftOrHungIsTheCause) {
  EXPECT_EQ(rank_at_fault({left(1, 0), left(0, 7), left(2, 7)}), 1);
  EXPECT_EQ(rank_at_fault({left(0, 7), left(2, 7), killed(1)}), 1);
  EXPECT_EQ(rank_at_fault({left(2, 7), left(0, 7)}), 2);
}

}  // namespace
}  // namespace adtrain
