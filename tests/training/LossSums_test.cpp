#include "training/LossSums.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "collectives/SingleCommunicator.h"

namespace adtrain {
namespace {

/// What a micro-batch returns.
AlgorithmDistillation::Loss loss_of(double loss, int64_t correct, int64_t targets, at::Device device) {
  return {.sum = at::full({}, loss, at::TensorOptions(device).dtype(at::kFloat)),
          .correct = at::full({}, correct, at::TensorOptions(device).dtype(at::kLong)),
          .targets = targets};
}

void expect_means(at::Device device) {
  SingleCommunicator communicator(device);
  LossSums sums(device);
  const auto add = [&](double loss, int64_t correct, int64_t targets) {
    sums.add(loss_of(loss, correct, targets, device));
  };
  add(8.5, 2, 5);
  add(3.25, 4, 7);
  const LossFigures figures = sums.take_merged(communicator);
  EXPECT_DOUBLE_EQ(figures.loss, 11.75 / 12);
  EXPECT_DOUBLE_EQ(figures.accuracy.value(), 6.0 / 12);
  EXPECT_EQ(figures.targets, 12);
  add(1.5, 1, 2);
  EXPECT_DOUBLE_EQ(sums.take_merged(communicator).loss, 0.75) << "it starts anew";
}

/// One micro-batch that overflows must not make a whole interval's figures NaN.
void expect_overflows_counted_apart(at::Device device) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  SingleCommunicator communicator(device);
  LossSums sums(device);
  sums.add(loss_of(8.5, 2, 5, device));
  sums.add(loss_of(std::nan(""), 3, 5, device));
  sums.add(loss_of(kInfinity, 4, 5, device));
  sums.add(loss_of(3.25, 4, 7, device));
  const LossFigures figures = sums.take_merged(communicator);
  EXPECT_DOUBLE_EQ(figures.loss, 11.75 / 12);
  EXPECT_DOUBLE_EQ(figures.accuracy.value(), 6.0 / 12);
  EXPECT_EQ(figures.targets, 12);
  EXPECT_EQ(figures.non_finite_batches, 2);

  sums.add(loss_of(-kInfinity, 1, 5, device));
  const LossFigures nothing_else = sums.take_merged(communicator);
  EXPECT_TRUE(std::isnan(nothing_else.loss)) << "no loss is not a loss of 0";
  EXPECT_TRUE(std::isnan(nothing_else.accuracy.value()));
  EXPECT_EQ(nothing_else.non_finite_batches, 1);
  sums.add(loss_of(1.5, 1, 2, device));
  EXPECT_EQ(sums.take_merged(communicator).non_finite_batches, 0);
}

/// Predictions of real numbers, of which none is correct or not.
void expect_no_accuracy(at::Device device) {
  SingleCommunicator communicator(device);
  LossSums sums(device);
  const auto add = [&](double loss) {
    AlgorithmDistillation::Loss added = loss_of(loss, 0, 4, device);
    added.correct = at::Tensor();
    sums.add(added);
  };
  add(2.5);
  add(std::nan(""));
  const LossFigures figures = sums.take_merged(communicator);
  EXPECT_DOUBLE_EQ(figures.loss, 2.5 / 4);
  EXPECT_EQ(figures.targets, 4);
  EXPECT_EQ(figures.non_finite_batches, 1);
  EXPECT_EQ(figures.accuracy, std::nullopt);
}

/// Of packed rows, whose targets the device counts.
void expect_counted_targets(at::Device device) {
  SingleCommunicator communicator(device);
  LossSums sums(device);
  for (const int64_t counted : {3, 6}) {
    AlgorithmDistillation::Loss added = loss_of(4.5, 2, /*targets=*/8, device);
    added.counted = at::full({}, counted, at::TensorOptions(device).dtype(at::kLong));
    sums.add(added);
  }
  const LossFigures figures = sums.take_merged(communicator);
  EXPECT_EQ(figures.targets, 9);
  EXPECT_DOUBLE_EQ(figures.loss, 1);
  EXPECT_DOUBLE_EQ(figures.accuracy.value(), 4.0 / 9);
}

TEST(LossSums, OfPackedRowsMeansAreOverWhatIsNoPadding) {
  expect_counted_targets(at::kCPU);
}

TEST(LossSums, MeansAreOverAllTargets) {
  expect_means(at::kCPU);
}

TEST(LossSums, WhatIsNotFiniteIsCountedAndLeftOut) {
  expect_overflows_counted_apart(at::kCPU);
}

TEST(LossSums, WhatCannotBeCorrectHasNoAccuracy) {
  expect_no_accuracy(at::kCPU);
}

TEST(LossSums, TheKernelOfGpusAddsAlike) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  expect_means(at::Device(at::kCUDA, 0));
  expect_overflows_counted_apart(at::Device(at::kCUDA, 0));
  expect_no_accuracy(at::Device(at::kCUDA, 0));
  expect_counted_targets(at::Device(at::kCUDA, 0));
}

}  // namespace
}  // namespace adtrain
