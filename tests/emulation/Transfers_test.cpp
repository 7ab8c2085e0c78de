// Barriers with phases, copies of boxes and stores to other blocks, as the emulator does them.

#include "emulation/Transfers.h"

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "emulation/Emulator.h"

namespace adtrain::emulation {
namespace {

using ::testing::HasSubstr;

constexpr int kThreads = 64;
constexpr int kTries = 20;           ///< launches, each in another order
constexpr int kBarrierPlace = 8192;  ///< in shared memory
constexpr int kBytes = kBarrierPlace + 64;

int number() {
  return static_cast<int>(place.thread.x);
}
TransferBarrier& barrier_at(int index) {
  return reinterpret_cast<TransferBarrier*>(shared_memory() + kBarrierPlace)[index];
}
std::string fault_of(const std::function<void()>& kernel) {
  try {
    launch("tried", {1, 1, 1}, kThreads, kBytes, kernel);
  } catch (const KernelError& error) {
    return error.what();
  }
  return "none";
}

/// A warp fills a number, phase after phase, and the other one reads it: `waits` for it to be full and read.
int wrong_numbers(bool waits) {
  constexpr int kPhases = 6;
  int wrong = 0;
  for (int i = 0; i < kTries; ++i) {
    launch("phases", {1, 1, 1}, kThreads, kBytes, [&] {
      auto& slot = *reinterpret_cast<int*>(shared_memory());
      if (number() == 0) barrier_at(0).set_up(1), barrier_at(1).set_up(kLanes);
      barrier(0, 0);
      for (int phase = 0; phase < kPhases; ++phase) {
        if (number() == 0) {
          if (waits && phase > 0) barrier_at(1).await(phase - 1);
          slot = phase;
          barrier_at(0).arrive();
        } else if (number() >= kLanes) {
          if (waits) barrier_at(0).await(phase);
          wrong += slot != phase;
          barrier_at(1).arrive();
        }
      }
    });
  }
  return wrong;
}

TEST(Transfers, ABarrierEndsItsPhasesOneByOne) {
  EXPECT_EQ(wrong_numbers(true), 0);
  EXPECT_GT(wrong_numbers(false), 0);
}

TEST(Transfers, WhoWaitsForTooFewWaitsForEver) {
  const auto kernel = [](int arrivals, int expected) {
    return [=] {
      if (number() == 0) barrier_at(0).set_up(kThreads);
      barrier(0, 0);
      if (number() == 0 && expected > 0) barrier_at(0).expect(expected);
      barrier(0, 0);
      if (number() < arrivals) barrier_at(0).arrive();
      barrier_at(0).await(0);
    };
  };
  EXPECT_EQ(fault_of(kernel(kThreads, 0)), "none");
  EXPECT_THAT(fault_of(kernel(kThreads - 1, 0)), HasSubstr("for ever"));
  EXPECT_THAT(fault_of(kernel(kThreads, 16)), HasSubstr("for ever"));
  EXPECT_THAT(fault_of([] {
                if (number() == 0) barrier_at(0).set_up(1), barrier_at(0).expect(16);
                barrier(0, 0);
                barrier_at(0).arrive();
              }),
              HasSubstr("more threads arrive"));
}

/// A box of a matrix of 20 rows of 160 bytes, where each 16 bytes have their row and their number.
struct Box {
  int row, byte, rows, bytes;
};
std::vector<char> copied(const Box& box) {
  constexpr int kRows = 20, kRowBytes = 160, kChunk = 16;
  std::vector<char> matrix(kRows * kRowBytes);
  for (int i = 0; i < kRows * kRowBytes; ++i)
    matrix[i] = static_cast<char>(1 + i / kRowBytes * (kRowBytes / kChunk) + i % kRowBytes / kChunk);
  std::vector<char> found(static_cast<size_t>(box.rows * box.bytes));
  launch("box", {1, 1, 1}, kThreads, kBytes, [&] {
    if (number() == 0) {
      barrier_at(0).set_up(1);
      barrier_at(0).expect(box.rows * box.bytes);
      start_box_copy(shared_memory(), {matrix.data(), kRows, kRowBytes, box.rows, box.bytes},
                     {box.row, box.byte}, barrier_at(0));
      barrier_at(0).arrive();
    }
    barrier(0, 0);
    barrier_at(0).await(0);
    if (number() == 0) std::memcpy(found.data(), shared_memory(), found.size());
  });
  return found;
}

TEST(Transfers, BoxesAreSwizzledAndClearedBeyondTheMatrix) {
  const auto chunk = [](const std::vector<char>& found, const Box& box, int row, int number) {
    return static_cast<int>(static_cast<unsigned char>(found[row * box.bytes + 16 * number]));
  };
  for (const Box& box : {Box{0, 0, 8, 128}, {3, 32, 16, 64}, {2, 64, 16, 32}, {16, 96, 8, 128}}) {
    const std::vector<char> found = copied(box);
    for (int row = 0; row < box.rows; ++row) {
      const int key = box.bytes == 128 ? row % 8 : box.bytes == 64 ? row / 2 % 4 : row / 4 % 2;
      for (int number = 0; number < box.bytes / 16; ++number) {
        const int of_row = box.byte / 16 + number;
        const bool exists = box.row + row < 20 && of_row < 10;
        EXPECT_EQ(chunk(found, box, row, number ^ key), exists ? 1 + (box.row + row) * 10 + of_row : 0);
      }
    }
  }
}

/// Each row of a head has bytes of its own.
TEST(Transfers, ABoxIsOfOneHeadAndClearedOutsideItsRows) {
  constexpr int kRows = 5, kHeads = 2, kSequences = 3, kRowBytes = 64;
  std::vector<char> heads(kRows * kHeads * kSequences * kRowBytes);  // (sequences, rows, heads)
  for (size_t i = 0; i < heads.size(); ++i) heads[i] = static_cast<char>(1 + i / kRowBytes);
  const auto copied_from = [&](int row, int head, int sequence) {
    std::vector<char> found(8 * kRowBytes);
    launch("box", {1, 1, 1}, kThreads, kBytes, [&] {
      if (number() == 0) {
        barrier_at(0).set_up(1);
        barrier_at(0).expect(8 * kRowBytes);
        start_box_copy(shared_memory(),
                       {heads.data(), kRows, kRowBytes, 8, kRowBytes, kHeads * kRowBytes, kRowBytes,
                        kRows * kHeads * kRowBytes, kHeads, kSequences},
                       {row, 0, head, sequence}, barrier_at(0));
        barrier_at(0).arrive();
      }
      barrier(0, 0);
      barrier_at(0).await(0);
      if (number() == 0) std::memcpy(found.data(), shared_memory(), found.size());
    });
    return found;
  };
  for (int head = 0; head < kHeads; ++head) {
    for (int sequence = 0; sequence < kSequences; ++sequence) {
      for (const int first : {-3, 0, 2}) {
        const std::vector<char> found = copied_from(first, head, sequence);
        for (int i = 0; i < 8 * kRowBytes; ++i) {
          const int row = first + i / kRowBytes;
          EXPECT_EQ(found[i], row < 0 || row >= kRows ? 0 : 1 + (sequence * kRows + row) * kHeads + head);
        }
      }
    }
  }
  EXPECT_THROW(copied_from(0, kHeads, 0), KernelError);
}

TEST(Transfers, CopiesThatNobodyWaitsForAreErrors) {
  int faults = 0;
  std::array<char, 1024> matrix{};
  for (int i = 0; i < kTries; ++i) {
    faults += fault_of([&] {
                if (number() != 0) return;
                barrier_at(0).set_up(1);
                barrier_at(0).expect(1024);
                start_box_copy(shared_memory(), {matrix.data(), 8, 128, 8, 128}, {0, 0}, barrier_at(0));
              }) != "none";
  }
  EXPECT_GT(faults, 0);
  EXPECT_THAT(fault_of([&] {
                if (number() != 0) return;
                barrier_at(0).set_up(1);
                start_box_copy(shared_memory() + 512, {matrix.data(), 8, 128, 8, 128}, {0, 0}, barrier_at(0));
              }),
              HasSubstr("misaligned"));
}

TEST(Transfers, BlocksOfAClusterSendEachOtherNumbers) {
  constexpr int kBlocks = 3;
  for (int i = 0; i < kTries; ++i) {
    std::array<std::array<float, kBlocks>, 2 * kBlocks> found{};
    launch(
        "sends", {2 * kBlocks, 1, 1}, kThreads, kBytes,
        [&] {
          const int own = block_of_cluster();
          auto* const numbers = reinterpret_cast<float*>(shared_memory());
          if (number() == 0) {
            barrier_at(0).set_up(1);
            barrier_at(0).expect(16 * kBlocks);
            barrier_at(0).arrive();
          }
          cluster_barrier();
          if (number() < kBlocks) {
            const float value = static_cast<float>(1 + place.block.x);
            start_store(numbers + 4 * own, {value, 0, 0, 0}, barrier_at(0), number());
          }
          barrier_at(0).await(0);
          if (number() != 0) return;
          for (int from = 0; from < kBlocks; ++from) found[place.block.x][from] = numbers[4 * from];
        },
        kBlocks);
    for (int block = 0; block < 2 * kBlocks; ++block) {
      for (int from = 0; from < kBlocks; ++from)
        EXPECT_EQ(found[block][from], 1 + block / kBlocks * kBlocks + from);
    }
  }
}

TEST(Transfers, ClustersDivideTheBlocks) {
  EXPECT_THROW(launch(
                   "odd", {3, 1, 1}, kThreads, 0, [] {}, 2),
               KernelError);
  EXPECT_THROW(launch(
                   "large", {16, 1, 1}, kThreads, 0, [] {}, 16),
               KernelError);
}

}  // namespace
}  // namespace adtrain::emulation
