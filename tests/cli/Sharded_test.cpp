#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "Weights.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

/// Bytes of moments on each rank, as the metrics have them.
std::vector<int64_t> moments(const SmallRun& small, const std::string& run) {
  return small.metrics(run, "memory_parts")
      .back()
      .at("memory_parts")
      .at("moments")
      .get<std::vector<int64_t>>();
}

/// Two ranks add in one order only, and without clipping nothing else is summed: so results are equal bit for
/// bit, and what is not equal was moved wrongly. The network has buckets of all kinds of sizes.
constexpr const char* kExact =
    "small.yaml --set max_grad_norm=0 --set first_bucket_megabytes=0.0005 --set bucket_megabytes=0.01 ";
constexpr const char* kSharded = "--set shard_optimizer=true ";

TEST(Sharded, RunsStopContinueAndMoveBetweenRanksAsOthersDo) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string exact(kExact), sharded = exact + kSharded;
  const Finished whole = small.mpirun(2, exact + "--set run_name=whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;

  const Finished stopped = small.mpirun(2, sharded + "--set run_name=sharded --stop-after 7");
  ASSERT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_THAT(stopped.output, HasSubstr("its moments divided among 2 ranks"));
  const Finished resumed = small.mpirun(2, sharded + "--set run_name=sharded --resume");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(small.state("sharded", 20), small.state("whole", 20))
      << "the whole run's checkpoint, byte for byte, after a stop";
  const std::vector<int64_t> shares = moments(small, "sharded"), all = moments(small, "whole");
  EXPECT_EQ(shares[0] + shares[1], all[0]);
  EXPECT_GT(shares[0], all[0] / 3);

  // Three ranks with shards, then one, then two without.
  ASSERT_EQ(small.mpirun(3, sharded + "--set run_name=moved --stop-after 6").exit_code, 75);
  const Finished alone = small.adtrain(sharded + "--set run_name=moved --resume --stop-after 13");
  ASSERT_EQ(alone.exit_code, 75) << alone.output;
  EXPECT_THAT(alone.output,
              HasSubstr("shard_optimizer has no effect: of a single rank there is nothing to shard"));
  ASSERT_EQ(small.mpirun(2, exact + "--set run_name=moved --resume").exit_code, 0);
  EXPECT_LT(largest_difference(small, "whole", "moved"), 1e-5);
}

TEST(Sharded, ValidateAndEstimateKnowOfIt) {
  const SmallRun small;
  const Finished valid = small.adtrain("validate small.yaml " + std::string(kSharded));
  EXPECT_EQ(valid.exit_code, 0) << valid.output;
  EXPECT_THAT(valid.output, HasSubstr("# optimizer: AdamW, its moments divided among the ranks"));
  const Finished estimated = small.adtrain("estimate small.yaml --gpus 4 " + std::string(kSharded));
  EXPECT_EQ(estimated.exit_code, 0) << estimated.output;
  EXPECT_THAT(estimated.output, HasSubstr("the moments are divided among 4 GPUs"));
}

}  // namespace
}  // namespace adtrain
