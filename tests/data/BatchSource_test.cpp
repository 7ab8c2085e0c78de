#include "data/BatchSource.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "data/HistorySet.h"
#include "data/TransitionWindows.h"

namespace adtrain {
namespace {

constexpr uint64_t kSeed = 9;
constexpr WindowShape kShape = {.steps = 50, .horizon = 10, .length = 12};

std::unique_ptr<BatchSource> source_of(const BatchAssembler& windows, const BatchShare& share,
                                       int64_t first_sample, int64_t workers) {
  DataOptions options;
  options.num_workers = workers;
  return BatchSource::create({.windows = windows,
                              .order = SampleOrder(windows.samples(), kSeed),
                              .share = share,
                              .first_sample = first_sample},
                             options, at::kCPU);
}

bool equal(const Batch& a, const Batch& b) {
  return a.states.equal(b.states) && a.actions.equal(b.actions) && a.rewards.equal(b.rewards) &&
         a.next_states.equal(b.next_states);
}

TEST(BatchSource, WorkersDeliverWhatTheCallersThreadWould) {
  const HistorySet histories = HistorySet::random(4, 50, {9, 5}, 1);
  const TransitionWindows assembler(histories, kShape);
  const auto alone = source_of(assembler, {.micro_batch = 3}, 0, 0);
  const auto helped = source_of(assembler, {.micro_batch = 3}, 0, 3);
  for (int step = 0; step < 200; ++step) ASSERT_TRUE(equal(alone->next(), helped->next())) << "step " << step;
}

TEST(BatchSource, RanksAndAccumulationDealOutTheSameGlobalBatch) {
  const HistorySet histories = HistorySet::random(4, 50, {9, 5}, 1);
  const TransitionWindows assembler(histories, kShape);
  const auto whole = source_of(assembler, {.micro_batch = 12}, 0, 0);
  std::vector<std::unique_ptr<BatchSource>> ranks;
  for (int64_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(
        source_of(assembler, {.rank = rank, .world_size = 3, .micro_batch = 2, .accumulation = 2}, 0, 1));
  }
  for (int step = 0; step < 40; ++step) {
    const Batch all = whole->next();
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
  const HistorySet histories = HistorySet::random(4, 50, {9, 5}, 1);
  const TransitionWindows assembler(histories, kShape);
  const auto uninterrupted = source_of(assembler, {.micro_batch = 4}, 0, 0);
  for (int step = 0; step < 5; ++step) uninterrupted->next();
  const auto resumed = source_of(assembler, {.rank = 1, .world_size = 2, .micro_batch = 2}, 5 * 4, 2);
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(resumed->next().states.equal(uninterrupted->next().states.narrow(0, 2, 2)));
  }
}

TEST(BatchSource, StopsWhileWorkersAreAhead) {
  const HistorySet histories = HistorySet::random(4, 50, {9, 5}, 1);
  const TransitionWindows assembler(histories, kShape);
  for (int i = 0; i < 20; ++i) {
    source_of(assembler, {.micro_batch = 64}, 0, 2)->next();
  }
}

TEST(BatchSource, WhatAWorkerThrowsIsThrownToTheCaller) {
  const HistorySet histories = HistorySet::random(4, 50, {9, 5}, 1);
  const TransitionWindows assembler(histories, kShape);
  for (const int64_t workers : {0, 1, 2}) {
    // More rows than a vector can have.
    const auto source = source_of(assembler, {.micro_batch = int64_t{1} << 60}, 0, workers);
    EXPECT_THROW(source->next(), std::length_error) << workers << " workers";
    EXPECT_THROW(source->next(), std::length_error) << "nor does the next call wait for ever";
  }
}

/// Windows of which one cannot be read.
class OneIsDamaged final : public BatchAssembler {
 public:
  explicit OneIsDamaged(const TransitionWindows& sound, int64_t damaged) : sound_(sound), damaged_(damaged) {}

  int64_t samples() const override { return sound_.samples(); }
  Batch assemble(std::span<const int64_t> samples) const override {
    if (std::ranges::find(samples, damaged_) != samples.end()) throw DataError("damaged");
    return sound_.assemble(samples);
  }
  int64_t bytes() const override { return sound_.bytes(); }
  std::string description() const override { return sound_.description(); }

 private:
  const TransitionWindows& sound_;
  int64_t damaged_;
};

/// A run may end before it comes to what was read ahead, which depends on the number of workers.
TEST(BatchSource, WhatIsReadAheadFailsOnlyWhereItIsTaken) {
  const HistorySet histories = HistorySet::random(4, 50, {9, 5}, 1);
  const TransitionWindows sound(histories, kShape);
  constexpr int64_t kBatch = 4, kFailing = 5;
  const OneIsDamaged windows(sound, SampleOrder(sound.samples(), kSeed).sample_at(kFailing * kBatch + 1));
  for (const int64_t workers : {0, 1, 3}) {
    const auto source = source_of(windows, {.micro_batch = kBatch}, 0, workers);
    for (int64_t step = 0; step < kFailing; ++step) EXPECT_NO_THROW(source->next()) << workers << " workers";
    EXPECT_THROW(source->next(), DataError) << workers << " workers";
  }
}

}  // namespace
}  // namespace adtrain
