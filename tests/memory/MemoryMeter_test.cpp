#include "memory/MemoryMeter.h"

#include <optional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "support/ShadowMemory.h"

namespace adtrain {
namespace {

constexpr int64_t kMegabyte = 1'000'000;

void expect_it_sees_what_is_taken_and_given_back(at::Device device) {
  MemoryMeter meter(device, std::nullopt, 1);
  at::ones({1}, at::TensorOptions(device).dtype(at::kByte));  // loads the kernel, which takes memory too
  meter.restart();
  const int64_t before = meter.now().in_use;
  constexpr int64_t kBytes = 256 * kMegabyte;
  {
    const at::Tensor taken = at::ones({kBytes}, at::TensorOptions(device).dtype(at::kByte));
    EXPECT_NEAR(static_cast<double>(meter.now().in_use - before), kBytes, 16 * kMegabyte);
  }
  EXPECT_NEAR(static_cast<double>(meter.peak() - before), kBytes, 16 * kMegabyte) << "the peak stays";
  meter.restart();
  EXPECT_NEAR(static_cast<double>(meter.now().in_use - before), 0, 16 * kMegabyte);
  EXPECT_NEAR(static_cast<double>(meter.peak() - before), 0, 16 * kMegabyte) << "a new peak";
  EXPECT_GT(meter.now().available(), 0);
}

TEST(MemoryMeter, SeesWhatTheProcessHasResident) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer keeps what is freed";
  expect_it_sees_what_is_taken_and_given_back(at::kCPU);
}

TEST(MemoryMeter, SeesWhatAGpuHasInUse) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  expect_it_sees_what_is_taken_and_given_back(at::Device(at::kCUDA, 0));
}

/// What the caller names, what was taken since restart(), and the rest.
void expect_it_splits(at::Device device) {
  MemoryMeter meter(device, std::nullopt, 1);
  const auto bytes = at::TensorOptions(device).dtype(at::kByte);
  const at::Tensor named = at::ones({64 * kMegabyte}, bytes);
  meter.restart();
  const at::Tensor taken = at::ones({256 * kMegabyte}, bytes);
  const MemorySplit split = meter.split({.parameters = 64 * kMegabyte});
  EXPECT_EQ(split.parameters, 64 * kMegabyte);
  EXPECT_NEAR(static_cast<double>(split.activations), 256 * kMegabyte, 16 * kMegabyte);
  EXPECT_NEAR(static_cast<double>(split.total()), static_cast<double>(meter.now().in_use), 16 * kMegabyte);
  EXPECT_GT(split.other, 0);
}

TEST(MemoryMeter, SplitsWhatTheProcessHasResident) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer keeps what is freed";
  expect_it_splits(at::kCPU);
}

TEST(MemoryMeter, SplitsWhatAGpuHasInUse) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  expect_it_splits(at::Device(at::kCUDA, 0));
}

TEST(MemoryMeter, ALimitIsTheCpusTotal) {
  EXPECT_EQ(MemoryMeter(at::kCPU, 3 * kMegabyte, 2).now().total, 3 * kMegabyte);
  // Ranks of one host share it.
  const int64_t alone = MemoryMeter(at::kCPU, std::nullopt, 1).now().total;
  EXPECT_LT(MemoryMeter(at::kCPU, std::nullopt, 4).now().total, alone / 2);
}

}  // namespace
}  // namespace adtrain
