#include "emulation/WarpgroupMatrices.h"

#include <cstring>

#include <gmock/gmock.h>

#include "emulation/Emulator.h"

namespace adtrain::emulation {
namespace {

using ::testing::HasSubstr;

constexpr int kRows = 64, kThreads = 128, kDepth = 16, kRowBytes = 128;
constexpr int kTileBytes = kRows * kRowBytes;
/// A tile with a swizzle of 128 bytes at the beginning of shared memory.
constexpr uint64_t kDescriptor = uint64_t{1} << 62 | uint64_t{8 * kRowBytes / 16} << 32;

int value_of(int row, int column) {
  return (5 * row + 3 * column) % 13 - 6;
}

uint32_t bf16(int value) {
  const auto real = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &real, sizeof bits);
  return bits >> 16;
}

/// Fills the tile (64, 64) with value_of. A row's units of 16 bytes are exchanged by the row's last 3 bits.
void fill_tile() {
  for (int i = static_cast<int>(place.thread.x); i < kRows * kRows; i += kThreads) {
    const int row = i / kRows, column = i % kRows;
    const int byte = kRowBytes * row + 16 * (column / 8 ^ row % 8) + 2 * (column % 8);
    const auto bits = static_cast<uint16_t>(bf16(value_of(row, column)));
    std::memcpy(shared_memory() + byte, &bits, sizeof bits);
  }
  barrier(0, 0);
}

/// The thread's part of left[i][k] = value_of(i, 7 k), of the warp's 16 rows of 64.
void take_left(uint32_t (&left)[4]) {
  const int lane = static_cast<int>(place.thread.x) % kLanes,
            warp = static_cast<int>(place.thread.x) / kLanes;
  for (int part = 0; part < 4; ++part) {
    const int row = 16 * warp + lane / 4 + 8 * (part % 2), k = 2 * (lane % 4) + 8 * (part / 2);
    left[part] = bf16(value_of(row, 7 * k)) | bf16(value_of(row, 7 * (k + 1))) << 16;
  }
}

/// Calls take(i, row, column) for the thread's sums of 64 columns.
template <class Take>
void for_sums(Take&& take) {
  const int lane = static_cast<int>(place.thread.x) % kLanes,
            warp = static_cast<int>(place.thread.x) / kLanes;
  for (int i = 0; i < kRows / 2; ++i) {
    take(i, 16 * warp + lane / 4 + 8 * (i / 2 % 2), i / 4 * 8 + 2 * (lane % 4) + i % 2);
  }
}

TEST(WarpgroupMatrices, ProductsWithTilesInBothDirections) {
  launch("products", {1, 1, 1}, kThreads, kTileBytes, [] {
    fill_tile();
    float with_rows[32] = {}, over_rows[32] = {}, of_shared[32] = {}, of_rows[32] = {};
    GroupProduct product = {with_rows, kRows, {}, kDescriptor + 16 * 2 / 16, /*across=*/false, 0};
    take_left(product.left);
    start_product(product);
    product.sums = over_rows, product.right = kDescriptor + 16 * kRowBytes / 16, product.across = true;
    start_product(product);
    start_product({of_shared, kRows, {}, kDescriptor, /*across=*/false, kDescriptor});
    start_product(
        {of_rows, kRows, {}, kDescriptor, /*across=*/true, kDescriptor, /*halves=*/false, /*down=*/true});
    close_products();
    wait_for_products(0);
    for_sums([&](int i, int row, int column) {
      int expected[4] = {};
      for (int k = 0; k < kDepth; ++k) {
        expected[0] += value_of(row, 7 * k) * value_of(column, 16 + k);
        expected[1] += value_of(row, 7 * k) * value_of(16 + k, column);
        expected[2] += value_of(row, k) * value_of(column, k);
        expected[3] += value_of(k, row) * value_of(k, column);
      }
      EXPECT_EQ(with_rows[i], static_cast<float>(expected[0])) << row << ", " << column;
      EXPECT_EQ(over_rows[i], static_cast<float>(expected[1])) << row << ", " << column;
      EXPECT_EQ(of_shared[i], static_cast<float>(expected[2])) << row << ", " << column;
      EXPECT_EQ(of_rows[i], static_cast<float>(expected[3])) << row << ", " << column;
    });
  });
}

TEST(WarpgroupMatrices, AMissingWaitIsSeen) {
  constexpr int kTries = 20;
  for (const bool waits : {true, false}) {
    int early = 0;
    for (int i = 0; i < kTries; ++i) {
      launch("waits", {1, 1, 1}, kThreads, kTileBytes, [&] {
        fill_tile();
        float sums[32] = {};
        start_product({sums, kRows, {}, kDescriptor, /*across=*/false, kDescriptor});
        close_products();
        if (waits) wait_for_products(0);
        for_sums([&](int k, int row, int column) { early += row == column && sums[k] == 0; });
        wait_for_products(0);
      });
    }
    EXPECT_EQ(early == 0, waits);
  }
}

TEST(WarpgroupMatrices, ProductsThatNobodyWaitsForAreAnError) {
  std::string fault = "none";
  try {
    launch("forgets", {40, 1, 1}, kThreads, kTileBytes, [] {
      fill_tile();
      static float sums[kThreads][32];
      start_product({sums[place.thread.x], kRows, {}, kDescriptor, /*across=*/false, kDescriptor});
      close_products();
    });
  } catch (const KernelError& error) {
    fault = error.what();
  }
  EXPECT_THAT(fault, HasSubstr("before its products have arrived"));
}

TEST(WarpgroupMatrices, AWarpThatStaysAwayIsAnError) {
  std::string fault = "none";
  try {
    launch("three warps", {1, 1, 1}, kThreads, kTileBytes, [] {
      fill_tile();
      if (place.thread.x < kLanes) return;
      float sums[32] = {};
      start_product({sums, kRows, {}, kDescriptor, /*across=*/false, kDescriptor});
      close_products();
      wait_for_products(0);
    });
  } catch (const KernelError& error) {
    fault = error.what();
  }
  EXPECT_THAT(fault, HasSubstr("wait for others for ever"));
}

}  // namespace
}  // namespace adtrain::emulation
