#include <csignal>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adtrain/adtrain.h"
#include "framework/TestedGroup.h"
#include "launch/DistributedOptions.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

at::Tensor of_this_rank(double value) {
  return at::full({3}, value, at::TensorOptions(group().device()));
}

TEST(Group, KnowsItsPlace) {
  const LaunchInfo info = LaunchInfo::detect();
  EXPECT_EQ(info.rank, group().rank());
  EXPECT_EQ(info.world_size, group().world_size());
  EXPECT_FALSE(info.evidence.empty());
  EXPECT_EQ(group().launch().launcher, info.launcher);
  EXPECT_EQ(info.launcher == "a single process", group().world_size() == 1);
}

TEST(Group, CollectiveOperationsHaveTheirResults) {
  const auto rank = static_cast<double>(group().rank()), ranks = static_cast<double>(group().world_size());
  at::Tensor sum = of_this_rank(rank + 1);
  group().all_reduce(sum);
  EXPECT_EQ(sum[2].item<double>(), ranks * (ranks + 1) / 2);
  at::Tensor largest = of_this_rank(rank), least = of_this_rank(rank);
  group().all_reduce(largest, Reduction::kMax);
  group().all_reduce(least, Reduction::kMin);
  EXPECT_EQ(largest[0].item<double>(), ranks - 1);
  EXPECT_EQ(least[0].item<double>(), 0);
  at::Tensor of_root = of_this_rank(rank + 7);
  group().broadcast(of_root);
  EXPECT_EQ(of_root[1].item<double>(), 7);
  const at::Tensor all = group().all_gather(of_this_rank(rank));
  EXPECT_EQ(all.sizes(), at::IntArrayRef({group().world_size(), 3}));
  EXPECT_EQ(all[group().world_size() - 1][0].item<double>(), ranks - 1);
  at::Tensor later = of_this_rank(1);
  Work work = group().start_all_reduce(later);
  work.wait();
  EXPECT_EQ(later[0].item<double>(), ranks);
  EXPECT_EQ(group().text_of_root("rank " + std::to_string(group().rank())), "rank 0");
  group().barrier();
  group().synchronize();
}

TEST(Group, SynchronizeWaitsForTheDevice) {
  if (!group().device().is_cuda()) GTEST_SKIP() << "no GPU";
  const at::Tensor factor = at::rand({8192, 8192}, at::TensorOptions(group().device()));
  at::Tensor product = factor;
  for (int round = 0; round < 8; ++round) product = product.matmul(factor).sigmoid();
  at::cuda::CUDAEvent done;
  done.record();
  group().synchronize();
  EXPECT_TRUE(done.query());
}

TEST(Group, RefusesATensorThatItCannotSend) {
  at::Tensor complex = at::zeros({2}, at::kComplexFloat);
  EXPECT_THROW(group().all_reduce(complex), std::invalid_argument);
}

TEST(Group, RanksThatDisagreeAllSaySo) {
  group().check_same("the weather", "fine");
  if (group().world_size() == 1) return;
  try {
    group().check_same("the weather", std::to_string(group().rank()));
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_EQ(exit_code_of(error), 3);
    EXPECT_THAT(error.what(), HasSubstr("the weather is '0' on rank 0"));
  }
}

TEST(Group, AStopOfOneRankIsAgreedOn) {
  const StopSignal stop;
  EXPECT_FALSE(stop.requested(group()));
  if (group().rank() == group().world_size() - 1) std::raise(SIGUSR1);
  EXPECT_TRUE(stop.requested(group()));
}

TEST(Group, DeadlinesAreThoseOfAdtrainItself) {
  const LaunchOptions options;
  const DistributedOptions own;
  EXPECT_EQ(options.rendezvous_timeout_seconds, own.rendezvous_timeout_seconds);
  EXPECT_EQ(options.collective_timeout_seconds, own.collective_timeout_seconds);
  EXPECT_EQ(options.silent_rank_seconds, own.silent_rank_seconds);
  EXPECT_EQ(options.leave_within_seconds, own.leave_within_seconds);
  const DataParallelOptions gradients;
  EXPECT_EQ(gradients.bucket_bytes, own.reducer().bucket_bytes);
  EXPECT_EQ(gradients.first_bucket_bytes, own.reducer().first_bucket_bytes);
}

}  // namespace
}  // namespace adtrain
