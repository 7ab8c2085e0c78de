#include "collectives/NodeMemory.h"

#include <chrono>
#include <cstring>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "collectives/Agreement.h"
#include "collectives/LongWork.h"
#include "collectives/ranks/Ranks.h"

namespace adtrain {
namespace {

constexpr size_t kPieces = 37, kPieceBytes = 1000;

/// Each rank fills its pieces with its own number + 1, and returns all of them as this rank sees them.
std::string filled(SharedBytes& memory) {
  Communicator& communicator = *ranks().communicator;
  for (size_t piece = 0; piece < kPieces; ++piece) {
    if (memory.fills(piece))
      std::memset(memory.bytes.get() + piece * kPieceBytes, static_cast<int>(communicator.rank()) + 1,
                  kPieceBytes);
  }
  memory.close();
  communicator.barrier();
  return {reinterpret_cast<const char*>(memory.bytes.get()), kPieces * kPieceBytes};
}

TEST(NodeMemory, IsOneCopyThatAllRanksFillTogether) {
  Communicator& communicator = *ranks().communicator;
  NodeMemory node(communicator, "the same");
  ASSERT_EQ(node.sharers(), static_cast<size_t>(communicator.world_size()));
  SharedBytes memory = node.allocate(kPieces * kPieceBytes);
  EXPECT_EQ(node.why_not_shared(), "");
  EXPECT_EQ(memory.sharers, node.sharers());
  const std::string seen = filled(memory);
  for (size_t piece = 0; piece < kPieces; ++piece) {
    const char expected = static_cast<char>(piece % memory.sharers + 1);
    ASSERT_EQ(seen.substr(piece * kPieceBytes, kPieceBytes), std::string(kPieceBytes, expected));
  }
}

TEST(NodeMemory, OfOtherContentIsNotShared) {
  Communicator& communicator = *ranks().communicator;
  NodeMemory node(communicator, "content " + std::to_string(communicator.rank() % 2));
  EXPECT_EQ(node.sharers(),
            static_cast<size_t>((communicator.world_size() + 1 - communicator.rank() % 2) / 2));
  SharedBytes memory = node.allocate(kPieces * kPieceBytes);
  const std::string seen = filled(memory);
  for (size_t piece = 0; piece < kPieces; ++piece)
    ASSERT_EQ(seen[piece * kPieceBytes] % 2, (communicator.rank() + 1) % 2)
        << "another content's rank wrote it";
}

TEST(NodeMemory, WhereItCannotBeSharedEachRankHasItsOwn) {
  Communicator& communicator = *ranks().communicator;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  if (communicator.is_root()) {  // who makes the memory
    const rlimit less = {4096, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &less);
  }
  NodeMemory node(communicator, "");
  SharedBytes memory = node.allocate(kPieces * kPieceBytes);
  setrlimit(RLIMIT_FSIZE, &before);
  if (communicator.world_size() > 1) {
    EXPECT_THAT(node.why_not_shared(), testing::HasSubstr("File too large"));
  }
  EXPECT_EQ(memory.sharers, 1U);
  const char own = static_cast<char>(communicator.rank() + 1);
  EXPECT_EQ(filled(memory), std::string(kPieces * kPieceBytes, own));
}

TEST(LongWork, WaitsForTheLastRankAndTellsHowFarAllAre) {
  Communicator& communicator = *ranks().communicator;
  int64_t last = -1, of = 0;
  LongWork work(communicator, [&](int64_t done, int64_t pieces) {
    EXPECT_GE(done, last);
    last = done;
    of = pieces;
  });
  std::atomic<bool> ended = false;
  work.run(communicator.rank() + 1, [&](std::atomic<int64_t>& done) {
    for (int64_t piece = 0; piece <= communicator.rank(); ++piece) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      ++done;
    }
    ended = true;
  });
  EXPECT_TRUE(ended);
  const int64_t pieces = communicator.world_size() * (communicator.world_size() + 1) / 2;
  EXPECT_EQ(last, pieces);
  EXPECT_EQ(of, pieces);
}

TEST(LongWork, GivesEveryRankAllResults) {
  Communicator& communicator = *ranks().communicator;
  for (const size_t count : {0, 1, 2, 5, 23}) {
    const std::vector<std::string> results =
        LongWork(communicator, {}).compute(count, 2, [](size_t i) { return std::string(i, '\0') + "x"; });
    ASSERT_EQ(results.size(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(results[i], std::string(i, '\0') + "x");
  }
}

TEST(LongWork, ThrowsWhatTheWorkThrows) {
  if (ranks().communicator->world_size() > 1) return;  // the ranks could do nothing together behind it
  LongWork work(*ranks().communicator, {});
  EXPECT_THROW(work.run(1, [](auto&) { throw DataError("no data"); }), DataError);
}

}  // namespace
}  // namespace adtrain
