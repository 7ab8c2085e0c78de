#include "placement/GpuShare.h"

#include <gmock/gmock.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using ::testing::ElementsAre;
using Seen = std::vector<std::vector<std::string>>;

TEST(GpuShare, RanksOfAHostShareWhatAllSee) {
  const std::vector<std::string> four = {"a", "b", "c", "d"};
  const Seen two_ranks = {four, four};
  EXPECT_THAT(gpus_of_rank(two_ranks, 0), ElementsAre(0, 1));
  EXPECT_THAT(gpus_of_rank(two_ranks, 1), ElementsAre(2, 3));
  const Seen three_ranks = {four, four, four};
  EXPECT_THAT(gpus_of_rank(three_ranks, 0), ElementsAre(0));
  EXPECT_THAT(gpus_of_rank(three_ranks, 1), ElementsAre(1));
  EXPECT_THAT(gpus_of_rank(three_ranks, 2), ElementsAre(2, 3));
  EXPECT_THAT(gpus_of_rank({four}, 0), ElementsAre(0, 1, 2, 3));
}

TEST(GpuShare, OwnGpusAndOtherHostsAreNotShared) {
  const Seen own = {{"a", "b"}, {"c", "d"}};
  EXPECT_THAT(gpus_of_rank(own, 1), ElementsAre(0, 1));
  const Seen hosts = {{"a", "b"}, {"e", "f"}, {"a", "b"}, {"e", "f"}};
  EXPECT_THAT(gpus_of_rank(hosts, 1), ElementsAre(0));
  EXPECT_THAT(gpus_of_rank(hosts, 2), ElementsAre(1));
}

TEST(GpuShare, RefusesPartsAndTooFew) {
  EXPECT_THROW(gpus_of_rank({{"a", "b"}, {"b", "c"}}, 1), EnvironmentError);
  EXPECT_THROW(gpus_of_rank({{"a"}, {"a"}}, 0), EnvironmentError);
  EXPECT_THROW(gpus_of_rank({{}, {}}, 0), EnvironmentError);
}

}  // namespace
}  // namespace adtrain
