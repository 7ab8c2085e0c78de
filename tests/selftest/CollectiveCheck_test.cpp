#include "selftest/CollectiveCheck.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr int64_t kWrongElement = 1234;

/// Rank 0 of two: the other one holds what the checks give it, one more than rank 0 in every element, except
/// that each thing which is told to be wrong is so in one element.
class TwoRanks final : public Communicator {
 public:
  TwoRanks() : Communicator(0, 2, 1) {}
  std::string backend() const override { return "a test"; }

  bool sums_are_wrong = false;
  bool broadcasts_are_wrong = false;

 protected:
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor& tensor, int64_t root) override {
    if (root == 1) tensor.copy_(at::arange(tensor.numel()).remainder(997).add(1));
    if (root == 1 && broadcasts_are_wrong) tensor[kWrongElement] += 1;
    return std::make_unique<NoCollectiveWork>();
  }
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor& tensor, ReduceOp op) override {
    if (op == ReduceOp::kSum) tensor.mul_(2).add_(1);
    if (op == ReduceOp::kSum && sums_are_wrong) tensor[kWrongElement] -= 1;
    return std::make_unique<NoCollectiveWork>();
  }
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) override {
    gathered.copy_(tensor.view({1, -1}).expand({2, -1}));
    return std::make_unique<NoCollectiveWork>();
  }
  std::unique_ptr<CollectiveWork> begin_barrier() override { return std::make_unique<NoCollectiveWork>(); }
};

TEST(CollectiveCheck, RightResultsAreFoundRight) {
  TwoRanks ranks;
  EXPECT_THAT(check_broadcast(ranks, 1 << 20).faults, IsEmpty());
  const CollectiveFigures figures = check_all_reduce(ranks, 1 << 20);
  EXPECT_THAT(figures.faults, IsEmpty());
  EXPECT_GT(figures.seconds, 0);
}

TEST(CollectiveCheck, OneWrongElementIsFoundAndShown) {
  TwoRanks ranks;
  ranks.sums_are_wrong = true;
  ranks.broadcasts_are_wrong = true;
  EXPECT_THAT(check_all_reduce(ranks, 1 << 20).faults,
              ElementsAre("rank 0: 1 of 262144 elements wrong, the first at 1234: found 474, expected 475",
                          StartsWith("rank 1: ")));
  EXPECT_THAT(check_broadcast(ranks, 1 << 20).faults,
              ElementsAre(HasSubstr("from rank 1, 1 of 262144 elements wrong"), StartsWith("rank 1: ")));
}

TEST(CollectiveCheck, BandwidthsFollowTheirFormulas) {
  const CollectiveFigures figures{.bytes = 1000, .seconds = 0.5, .faults = {}};
  EXPECT_DOUBLE_EQ(figures.algorithm_bandwidth(), 2000);
  EXPECT_DOUBLE_EQ(figures.bus_bandwidth(4), 3000);
  EXPECT_DOUBLE_EQ(figures.bus_bandwidth(2), 2000);
}

}  // namespace
}  // namespace adtrain
