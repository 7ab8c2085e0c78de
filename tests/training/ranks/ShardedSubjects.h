#pragma once

#include <cstdint>
#include <string>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "collectives/Agreement.h"
#include "collectives/ranks/Ranks.h"
#include "launch/DistributedOptions.h"
#include "support/FreshSeed.h"

/// What tests share that run inside every rank.
namespace adtrain {

/// Small, so that a little model has several buckets: with parts of all ranks, of some, and of the last only.
inline ReducerOptions small_buckets(bool shards) {
  return {.bucket_bytes = 6000, .first_bucket_bytes = 300, .shards = shards};
}

/// Rank 0's fresh_seed(), on all ranks.
inline uint64_t common_seed() {
  return std::stoull(text_of_root(*ranks().communicator, std::to_string(fresh_seed())));
}

/// Whether a reduce-scatter adds in the order of an all-reduce: Gloo's is one, and two numbers have one
/// order.
inline bool sums_are_equal() {
  return ranks().device.is_cpu() &&
         (ranks().communicator->backend() == "Gloo" || ranks().communicator->world_size() <= 2);
}

inline void expect_equal(const at::Tensor& found, const at::Tensor& expected, bool exactly,
                         const std::string& what) {
  if (expected.numel() == 0) return;  // of a rank without a part
  // Sums in another order differ by rounding, which AdamW makes more of where gradients are small: by 2.1e-6
  // after five steps on one kind of CPU, less on others.
  const double tolerance = exactly ? 0 : 1e-5;
  EXPECT_LE((found - expected).abs().max().item<double>(), tolerance) << what;
}

class OnRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ranks().device.is_cuda()) c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool());
  }
};

}  // namespace adtrain
