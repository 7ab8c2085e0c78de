#include "parallel/SlowRankMonitor.h"

#include <stdexcept>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

// One process, which is rank 1 of three. tests/launchers/test_slow_rank.py runs real ranks.

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The other ranks report ten seconds of which they have waited `others_wait`, and nothing besides.
class ScriptedRanks final : public Communicator {
 public:
  explicit ScriptedRanks(int64_t world_size = 3) : Communicator(world_size == 1 ? 0 : 1, world_size, 1) {}
  std::string backend() const override { return "script"; }
  double others_wait = 0;  ///< seconds

 protected:
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) override {
    gathered.zero_();
    if (tensor.scalar_type() == at::kDouble && tensor.numel() > 1) {
      gathered.copy_(at::tensor({10.0, others_wait, 0.0, 0.0, 0.0}, at::kDouble).expand_as(gathered));
    }
    gathered[rank()].copy_(tensor.view(-1));
    return std::make_unique<NoCollectiveWork>();
  }
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor&, ReduceOp) override {
    throw std::logic_error("not expected");
  }
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor&, int64_t) override {
    throw std::logic_error("not expected");
  }
  std::unique_ptr<CollectiveWork> begin_barrier() override { throw std::logic_error("not expected"); }
};

TEST(SlowRankMonitor, NamesTheSlowRankWhenThatBeginsAndWhenItEnds) {
  ScriptedRanks ranks;
  SlowRankMonitor monitor(ranks);
  monitor.begin();
  ranks.others_wait = 4;
  for (int report = 0; report < 2; ++report) EXPECT_THAT(monitor.report({}).warnings, IsEmpty());
  EXPECT_THAT(monitor.slow_ranks(), IsEmpty());
  EXPECT_THAT(monitor.report({}).warnings,
              ElementsAre(AllOf(HasSubstr("rank 1 of 3 ("), HasSubstr("on the CPU"),
                                HasSubstr("holds the others back, which wait for it in 40% of the time: "))));
  ASSERT_EQ(monitor.slow_ranks().size(), 1U);
  EXPECT_EQ(monitor.slow_ranks().front().rank, 1);

  ranks.others_wait = 6;
  EXPECT_THAT(monitor.report({}).warnings, IsEmpty()) << "it has been said";
  EXPECT_NEAR(monitor.slow_ranks().front().lost_share, 0.6, 1e-9) << "while the figure is current";

  ranks.others_wait = 0;
  EXPECT_THAT(monitor.report({}).notices, IsEmpty());
  const SlowRankMonitor::News news = monitor.report({});
  EXPECT_THAT(news.warnings, IsEmpty());
  EXPECT_THAT(news.notices, ElementsAre("rank 1 of 3 no longer holds the others back"));
  EXPECT_THAT(monitor.slow_ranks(), IsEmpty());
}

TEST(SlowRankMonitor, WhereAllWaitAlikeItNamesCommunication) {
  ScriptedRanks ranks;
  SlowRankMonitor monitor(ranks);
  monitor.begin();
  ranks.others_wait = 5;
  const RankTimes always{.waited = 1e9};  // of the little time between two reports of this test
  for (int report = 0; report < 2; ++report) EXPECT_THAT(monitor.report(always).notices, IsEmpty());
  const SlowRankMonitor::News news = monitor.report(always);
  EXPECT_THAT(news.warnings, IsEmpty());
  EXPECT_THAT(news.notices,
              ElementsAre(AllOf(HasSubstr("no rank holds the others back"), HasSubstr("3 ranks on"),
                                HasSubstr("50% of the time or more"))));
  EXPECT_THAT(monitor.slow_ranks(), IsEmpty());
  ranks.others_wait = 0;
  EXPECT_THAT(monitor.report({}).notices, IsEmpty());
  EXPECT_THAT(monitor.report({}).notices, ElementsAre(HasSubstr("no longer takes")));
}

TEST(SlowRankMonitor, ASingleRankExchangesNothing) {
  ScriptedRanks alone(1);
  SlowRankMonitor monitor(alone);
  monitor.begin();
  for (int report = 0; report < 5; ++report) {
    const SlowRankMonitor::News news = monitor.report({});
    EXPECT_THAT(news.warnings, IsEmpty());
    EXPECT_THAT(news.notices, IsEmpty());
  }
}

}  // namespace
}  // namespace adtrain
