#include "training/LossSums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "distributed/SingleCommunicator.h"

namespace adtrain {
namespace {

void expect_means(at::Device device) {
  SingleCommunicator communicator(device);
  LossSums sums(device);
  const auto add = [&](double loss, int64_t correct, int64_t targets) {
    sums.add({.sum = at::full({}, loss, at::TensorOptions(device).dtype(at::kFloat)),
              .correct = at::full({}, correct, at::TensorOptions(device).dtype(at::kLong)),
              .targets = targets});
  };
  add(8.5, 2, 5);
  add(3.25, 4, 7);
  const LossFigures figures = sums.take_merged(communicator);
  EXPECT_DOUBLE_EQ(figures.loss, 11.75 / 12);
  EXPECT_DOUBLE_EQ(figures.accuracy, 6.0 / 12);
  EXPECT_EQ(figures.targets, 12);
  add(1.5, 1, 2);
  EXPECT_DOUBLE_EQ(sums.take_merged(communicator).loss, 0.75) << "it starts anew";
}

TEST(LossSums, MeansAreOverAllTargets) {
  expect_means(at::kCPU);
}

TEST(LossSums, TheKernelOfGpusAddsAlike) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  expect_means(at::Device(at::kCUDA, 0));
}

}  // namespace
}  // namespace adtrain
