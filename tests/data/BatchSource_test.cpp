#include "data/BatchSource.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "RandomHistories.h"

namespace adtrain {
namespace {

constexpr WindowShape kShape = {.steps = 50, .horizon = 10, .length = 12};

bool equal(const Batch& a, const Batch& b) {
  return a.states.equal(b.states) && a.actions.equal(b.actions) && a.rewards.equal(b.rewards) &&
         a.next_states.equal(b.next_states);
}

TEST(BatchSource, WorkersDeliverWhatTheCallersThreadWould) {
  const HistorySet histories = random_histories(4, 50, 1);
  const BatchAssembler assembler(histories, kShape);
  const SampleOrder order(assembler.samples(), 9);
  BatchSource alone(assembler, order, {.micro_batch = 3}, 0, 0);
  BatchSource helped(assembler, order, {.micro_batch = 3}, 0, 3);
  for (int step = 0; step < 200; ++step) ASSERT_TRUE(equal(alone.next(), helped.next())) << "step " << step;
}

TEST(BatchSource, RanksAndAccumulationDealOutTheSameGlobalBatch) {
  const HistorySet histories = random_histories(4, 50, 1);
  const BatchAssembler assembler(histories, kShape);
  const SampleOrder order(assembler.samples(), 9);
  BatchSource whole(assembler, order, {.micro_batch = 12}, 0, 0);
  std::vector<std::unique_ptr<BatchSource>> ranks;
  for (int64_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<BatchSource>(
        assembler, order, BatchShare{.rank = rank, .world_size = 3, .micro_batch = 2, .accumulation = 2}, 0,
        1));
  }
  for (int step = 0; step < 40; ++step) {
    const Batch all = whole.next();
    for (int64_t micro_step = 0; micro_step < 2; ++micro_step) {
      for (int64_t rank = 0; rank < 3; ++rank) {
        const Batch share = ranks[static_cast<size_t>(rank)]->next();
        const int64_t row = (micro_step * 3 + rank) * 2;
        ASSERT_TRUE(share.states.equal(all.states.narrow(0, row, 2)));
        ASSERT_TRUE(share.rewards.equal(all.rewards.narrow(0, row, 2)));
      }
    }
  }
}

TEST(BatchSource, TheCursorContinuesARunAtAnotherRankCount) {
  const HistorySet histories = random_histories(4, 50, 1);
  const BatchAssembler assembler(histories, kShape);
  const SampleOrder order(assembler.samples(), 9);
  BatchSource uninterrupted(assembler, order, {.micro_batch = 4}, 0, 0);
  for (int step = 0; step < 5; ++step) uninterrupted.next();
  BatchSource resumed(assembler, order, {.rank = 1, .world_size = 2, .micro_batch = 2}, 5 * 4, 2);
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(resumed.next().states.equal(uninterrupted.next().states.narrow(0, 2, 2)));
  }
}

TEST(BatchSource, StopsWhileWorkersAreAhead) {
  const HistorySet histories = random_histories(4, 50, 1);
  const BatchAssembler assembler(histories, kShape);
  for (int i = 0; i < 20; ++i) {
    BatchSource source(assembler, SampleOrder(assembler.samples(), 1), {.micro_batch = 64}, 0, 2);
    source.next();
  }
}

}  // namespace
}  // namespace adtrain
