#include "emulation/Emulator.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "emulation/Matrices.h"

namespace adtrain::emulation {
namespace {

using ::testing::HasSubstr;

constexpr int kThreads = 64;
constexpr int kTries = 20;  ///< launches, each in another order

int number() {
  return static_cast<int>(place.thread.x);
}

/// What `kernel`, called for every thread of a block with as many ints of shared memory, is found to do
/// wrong.
std::string fault_of(const std::function<void()>& kernel) {
  try {
    launch("tried", {1, 1, 1}, kThreads, kThreads * sizeof(int), kernel);
  } catch (const KernelError& error) {
    return error.what();
  }
  return "none";
}

int* shared_numbers() {
  return reinterpret_cast<int*>(shared_memory());
}

/// How often a thread finds what its neighbour has given.
int found_of_neighbours(bool with_barrier) {
  int found = 0;
  for (int i = 0; i < kTries; ++i) {
    launch("neighbours", {1, 1, 1}, kThreads, kThreads * sizeof(int), [&] {
      shared_numbers()[number()] = number();
      if (with_barrier) barrier(0, 0);
      const int neighbour = (number() + 1) % kThreads;
      found += shared_numbers()[neighbour] == neighbour;
    });
  }
  return found;
}

TEST(Emulator, AMissingBarrierIsSeen) {
  EXPECT_EQ(found_of_neighbours(true), kTries * kThreads);
  EXPECT_LT(found_of_neighbours(false), kTries * kThreads);
}

TEST(Emulator, RunsEveryThreadOfEveryBlock) {
  std::array<int, 6> threads{};
  launch("count", {3, 2, 1}, kThreads, 0, [&] {
    EXPECT_EQ(place.blocks.x, 3u);
    EXPECT_EQ(place.block_size.x, unsigned{kThreads});
    ++threads[place.block.x + 3 * place.block.y];
  });
  EXPECT_THAT(threads, ::testing::Each(kThreads));
}

TEST(Emulator, GroupsOfThreadsHaveTheirOwnBarriers) {
  std::vector<int> arrived(2);
  EXPECT_EQ(fault_of([&] {
              const int group = number() / kLanes;
              for (int round = 1; round <= 1 + group; ++round) {
                ++arrived[group];
                barrier(1 + group, kLanes);
                EXPECT_EQ(arrived[group], round * kLanes);
                barrier(1 + group, kLanes);
              }
            }),
            "none");
}

TEST(Emulator, FindsLanesThatPartCompany) {
  const Operation one = [](const auto&) {}, other = [](const auto&) {};
  EXPECT_THAT(fault_of([&] { together(number() % 2 == 0 ? one : other, nullptr); }),
              HasSubstr("lanes of a warp do different things"));
  EXPECT_THAT(fault_of([&] {
                if (number() % 2 == 0) together(one, nullptr);
              }),
              HasSubstr("wait for others for ever"));
  EXPECT_THAT(fault_of([] {
                if (number() > 0) barrier(0, 0);
              }),
              HasSubstr("wait for others for ever"));
}

TEST(Emulator, FindsWhatIsOutsideSharedMemory) {
  constexpr int kBytes = kThreads * sizeof(int);
  EXPECT_EQ(fault_of([] { at_shared(kBytes - 16, 16); }), "none");
  EXPECT_THAT(fault_of([] { at_shared(kBytes, 4); }), HasSubstr("tried: an address outside shared memory"));
  EXPECT_THAT(fault_of([] { at_shared(shared_address(shared_memory() - 16), 16); }), HasSubstr("outside"));
  EXPECT_THAT(fault_of([] { at_shared(8, 16); }), HasSubstr("misaligned"));
  EXPECT_THAT(fault_of([] { shared_numbers()[kThreads] = 0; }), HasSubstr("a store outside shared memory"));
}

TEST(Emulator, CopiesArriveWhenSomebodyWaits) {
  alignas(16) const std::array<int, 4> from = {1, 2, 3, 4};
  const auto arrived = [&](bool waits) {
    int count = 0;
    EXPECT_EQ(fault_of([&] {
                if (number() >= kThreads / 4) return;
                start_copy(16 * number(), from.data(), 16, 8);
                if (waits) wait_for_copies(-1);
                const int* to = shared_numbers() + 4 * number();
                count += to[0] == 1 && to[1] == 2 && to[2] == 0 && to[3] == 0;
                wait_for_copies(-1);
              }),
              "none");
    return count;
  };
  EXPECT_EQ(arrived(true), kThreads / 4);
  EXPECT_LT(arrived(false), kThreads / 4);
  EXPECT_GT(arrived(false), 0);
  EXPECT_THAT(fault_of([&] {
                for (int i = 0; i < kThreads / 4; ++i) start_copy(16 * i, from.data(), 16, 16);
              }),
              HasSubstr("ends before its copies have arrived"));
}

TEST(Emulator, OfCopiesInGroupsTheLastMayBeUnderWay) {
  alignas(16) const std::array<int, 4> from = {1, 2, 3, 4};
  int last = 0;
  EXPECT_EQ(fault_of([&] {
              if (number() >= kThreads / 8) return;
              int* to = shared_numbers() + 8 * number();
              start_copy(32 * number(), from.data(), 16, 16);
              close_copies();
              start_copy(32 * number() + 16, from.data(), 16, 16);
              close_copies();
              wait_for_copies(1);
              EXPECT_EQ(to[3], 4);
              last += to[7] == 4;
              wait_for_copies(0);
              EXPECT_EQ(to[7], 4);
            }),
            "none");
  EXPECT_LT(last, kThreads / 8);
  EXPECT_GT(last, 0);
}

uint16_t bf16(int value) {
  const auto real = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &real, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

/// left (16 × 16), right (16 × 8) as rows of 16 bytes in shared memory, through ldmatrix and mma.
TEST(Matrices, ProductsOfWhatIsLoaded) {
  int left[16][16], right[16][8];
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) left[i][k] = (5 * i + 3 * k) % 7 - 3;
    for (int j = 0; j < 8; ++j) right[i][j] = (3 * i + 5 * j) % 11 - 5;
  }
  launch("product", {1, 1, 1}, kLanes, 48 * 16, [&] {
    // Left in four matrices: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15. Right as it stands.
    auto* rows = reinterpret_cast<uint16_t(*)[8]>(shared_memory());
    const int lane = number();
    for (int k = 0; k < 8; ++k) rows[lane][k] = bf16(left[lane % 16][k + 8 * (lane / 16)]);
    if (lane < 16) {
      for (int j = 0; j < 8; ++j) rows[32 + lane][j] = bf16(right[lane][j]);
    }
    barrier(0, 0);
    uint32_t of_left[4], of_right[2];
    load_matrices<4, false>(of_left, 16 * lane);
    load_matrices<2, true>(of_right, 16 * (32 + lane % 16));
    float sums[4] = {1, 1, 1, 1};
    multiply_add({sums, {of_left[0], of_left[1], of_left[2], of_left[3]}, {of_right[0], of_right[1]}});
    multiply_add_8({sums, {of_left[2], of_left[3], 0, 0}, {of_right[1], 0}});
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      int expected = 1;
      for (int k = 0; k < 16; ++k) expected += (k < 8 ? 1 : 2) * left[row][k] * right[k][column];
      EXPECT_EQ(sums[i], static_cast<float>(expected)) << row << ", " << column;
    }
    uint32_t other[4];
    store_matrices(16 * lane, {of_left[1], of_left[0], of_left[3], of_left[2]});
    barrier(0, 0);
    load_matrices<4, false>(other, 16 * lane);
    EXPECT_EQ(other[0], of_left[1]);
    EXPECT_EQ(other[3], of_left[2]);
  });
}

}  // namespace
}  // namespace adtrain::emulation
