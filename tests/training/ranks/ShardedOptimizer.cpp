#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "training/LossScale.h"
#include "training/Optimizer.h"
#include "training/ranks/ShardedSubjects.h"

namespace adtrain {
namespace {

using ShardedOptimizer = OnRanks;

/// Both optimizers of one flat tensor, which get the same gradients.
struct Pair {
  Pair(int64_t elements_of_each, const TrainingOptions& options, at::ScalarType type, uint64_t seed)
      : buckets(FlatLayout(std::vector<int64_t>(7, elements_of_each)), small_buckets(true)),
        shards(buckets, *ranks().communicator, ranks().device),
        initial(random(7 * elements_of_each, seed)),
        whole_parameters(initial.clone()),
        shard_parameters(initial.clone()),
        whole(whole_parameters, options),
        sharded(shard_parameters, options, &shards),
        whole_scale(ranks().device),
        shard_scale(ranks().device) {
    if (type == at::kFloat) return;
    whole_rounded = whole_parameters.to(type);
    shard_rounded = shard_parameters.to(type);
  }

  static at::Tensor random(int64_t elements, uint64_t seed) {
    at::manual_seed(seed);
    return at::randn({elements}).to(ranks().device);
  }

  /// Of the sharded one, elements that other ranks have the sums of hold anything.
  void step(const at::Tensor& gradient, double rate, bool scales) {
    at::Tensor of_shard = at::full_like(gradient, std::numeric_limits<double>::quiet_NaN());
    for (const auto& [bucket, own, in_shard] : shards.places())
      of_shard.narrow(0, own.begin, own.size).copy_(gradient.narrow(0, own.begin, own.size));
    whole.set_learning_rate(rate);
    sharded.set_learning_rate(rate);
    at::Tensor used = gradient.clone();
    whole.step(used, scales ? &whole_scale : nullptr, whole_rounded);
    sharded.step(of_shard, scales ? &shard_scale : nullptr, shard_rounded);
    EXPECT_EQ(of_shard.count_nonzero().item<int64_t>(), 0) << "all of the gradient is zero again";
    if (!scales) return;
    whole_scale.update();
    shard_scale.update();
  }

  void expect_alike(bool exactly, const std::string& what) {
    sharded.gather_parameters();
    expect_equal(shard_parameters, whole_parameters, exactly, what + ": parameters");
    if (whole_rounded.defined()) {
      EXPECT_TRUE(at::equal(shard_rounded, shard_parameters.to(shard_rounded.scalar_type()))) << what;
    }
    for (const auto& [bucket, own, in_shard] : shards.places()) {
      expect_equal(sharded.first_moment().narrow(0, in_shard, own.size),
                   whole.first_moment().narrow(0, own.begin, own.size), exactly, what + ": moment");
    }
    const double norm = whole.gradient_norm().item<double>();
    if (std::isfinite(norm)) {
      EXPECT_NEAR(sharded.gradient_norm().item<double>(), norm, 1e-5 * norm) << what;
    }
    EXPECT_EQ(sharded.step_count().item<double>(), whole.step_count().item<double>()) << what;
    EXPECT_TRUE(at::equal(shard_scale.state(), whole_scale.state())) << what;
    EXPECT_TRUE(at::equal(shard_scale.overflow(), whole_scale.overflow())) << what;
  }

  BucketLayout buckets;
  FlatShards shards;
  at::Tensor initial, whole_parameters, shard_parameters, whole_rounded, shard_rounded;
  Optimizer whole, sharded;
  LossScale whole_scale, shard_scale;
};

TEST_F(ShardedOptimizer, EachRankUpdatesItsShardAsTheWholeOptimizerDoes) {
  const uint64_t seed = common_seed();
  SCOPED_TRACE(seed);
  std::vector<at::ScalarType> types = {at::kFloat};
  if (ranks().device.is_cuda()) types = {at::kFloat, at::kBFloat16, at::kHalf};
  for (const at::ScalarType type : types) {
    for (const double max_grad_norm : {0.0, 1.0}) {
      for (const int64_t elements : {64, 704, 4096}) {
        TrainingOptions options;
        options.max_grad_norm = max_grad_norm;
        options.weight_decay = 0.1;
        Pair pair(elements, options, type, seed);
        for (int step = 0; step < 4; ++step) {
          const at::Tensor gradient = Pair::random(7 * elements, seed + static_cast<uint64_t>(step) + 1);
          pair.step(step % 2 == 0 ? gradient : gradient * 1e-4, 1e-2 / (step + 1), /*scales=*/false);
          pair.expect_alike(ranks().device.is_cpu() && max_grad_norm == 0,
                            std::string(c10::toString(type)) + " " + std::to_string(elements));
        }
      }
    }
  }
}

/// Only the rank whose shard overflows sees it, and all of them skip the step.
TEST_F(ShardedOptimizer, AllRanksSkipAStepThatOverflowsOnOne) {
  const uint64_t seed = common_seed();
  SCOPED_TRACE(seed);
  TrainingOptions options;
  Pair pair(704, options, ranks().device.is_cuda() ? at::kHalf : at::kFloat, seed);
  const int64_t elements = pair.initial.numel();
  std::mt19937_64 random(seed);
  for (int step = 0; step < 6; ++step) {
    at::Tensor gradient = Pair::random(elements, seed + static_cast<uint64_t>(step) + 1) * 65536;
    const at::Tensor before = pair.shard_parameters.clone();
    const bool overflows = step % 2 == 1;
    const auto place = static_cast<int64_t>(random() % static_cast<uint64_t>(elements));
    if (overflows) gradient[place] = step == 1 ? INFINITY : NAN;
    pair.step(gradient, 1e-2, /*scales=*/true);
    EXPECT_EQ(pair.shard_scale.overflow().item<double>(), overflows ? 1 : 0) << "step " << step;
    EXPECT_EQ(at::equal(pair.shard_parameters, before), overflows)
        << "step " << step << ", element " << place;
    pair.expect_alike(/*exactly=*/false, "step " + std::to_string(step));
  }
  EXPECT_EQ(pair.shard_scale.skipped_steps(), 3);
}

}  // namespace
}  // namespace adtrain
