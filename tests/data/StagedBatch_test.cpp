#include "data/StagedBatch.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "data/PinnedCopy.h"

namespace adtrain {
namespace {

/// Rows of several types, of sizes that divide by nothing, with a part that is a view.
Batch random_batch() {
  Batch batch;
  batch.states = at::randint(0, 256, {3, 2, 5, 7}, at::kByte);
  batch.actions = at::randint(0, 9, {3, 4}, at::kLong).narrow(1, 1, 2);
  batch.rewards = at::randn({3, 2});
  batch.begins = at::randint(0, 2, {3, 2}, at::kByte);
  batch.before_action = at::randint(0, 9, {3}, at::kLong);
  batch.state_mean = at::randn({3, 5, 7}, at::kHalf);
  batch.group = 2;
  return batch;
}

void expect_equal(const Batch& found, const Batch& expected) {
  EXPECT_EQ(found.group, expected.group);
  for (const auto part : {&Batch::states, &Batch::actions, &Batch::rewards, &Batch::next_states,
                          &Batch::begins, &Batch::before_action, &Batch::state_mean}) {
    const at::Tensor &of_found = found.*part, &of_expected = expected.*part;
    ASSERT_EQ(of_found.defined(), of_expected.defined());
    if (!of_expected.defined()) continue;
    EXPECT_EQ(of_found.scalar_type(), of_expected.scalar_type());
    EXPECT_TRUE(at::equal(of_found.cpu(), of_expected));
  }
}

TEST(StagedBatch, BatchesLieWithinOnePieceOfMemory) {
  const Batch batch = random_batch();
  const at::Tensor memory = at::zeros({batch.bytes()}, at::kByte);
  Batch within = batch.within(memory);
  within.copy_from(batch);
  expect_equal(within, batch);
  const Batch copy = batch.within(memory.clone());
  expect_equal(copy, batch);  // no tensor lies on another, and none outside
}

/// What is of the whole step stays so with some of the rows.
TEST(StagedBatch, SomeRowsKeepTheTargetsOfTheStep) {
  Batch batch = random_batch();
  batch.segment_first = at::zeros({3, 2}, at::kInt);
  batch.filled = at::tensor({2, 1, 2}, at::kInt);
  batch.step_targets = at::full({1}, 17, at::kLong);
  const Batch rows = batch.rows(1, 2);
  EXPECT_EQ(rows.step_targets.item<int64_t>(), 17);
  EXPECT_TRUE(at::equal(rows.filled, batch.filled.narrow(0, 1, 2)));
  EXPECT_TRUE(at::equal(rows.states, batch.states.narrow(0, 1, 2)));
}

TEST(StagedBatch, TransfersBringWhatIsStagedThen) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const Batch first = random_batch(), second = random_batch();
  StagedBatch staged(first, at::Device(at::kCUDA, 0));
  const auto synchronize = [] { c10::cuda::getCurrentCUDAStream().synchronize(); };
  synchronize();
  expect_equal(staged.on_gpu(), first);
  staged.stage(second);
  expect_equal(staged.on_gpu(), first);
  staged.start();
  synchronize();
  expect_equal(staged.on_gpu(), second);
}

/// By the kernel, and where there are more of them by a copy engine.
TEST(PinnedCopy, BringsAnyNumberOfBytesBothWays) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  constexpr int64_t kBeyond = 16, kUntouched = 77;
  for (const int64_t bytes : {0, 1, 15, 16, 17, 4111, 32768, 32769, 100000}) {
    SCOPED_TRACE(bytes);
    const at::Tensor from = at::randint(0, 256, {bytes + kBeyond}, at::kByte).pin_memory();
    const at::Tensor on_gpu = at::full({bytes + kBeyond}, kUntouched, at::device(at::kCUDA).dtype(at::kByte));
    const at::Tensor back = at::full({bytes + kBeyond}, kUntouched, at::kByte).pin_memory();
    copy_pinned(on_gpu.narrow(0, 0, bytes), from.narrow(0, 0, bytes));
    copy_pinned(back.narrow(0, 0, bytes), on_gpu.narrow(0, 0, bytes));
    c10::cuda::getCurrentCUDAStream().synchronize();
    const at::Tensor brought = on_gpu.cpu();
    for (const at::Tensor& found : {brought, back}) {
      EXPECT_TRUE(at::equal(found.narrow(0, 0, bytes), from.narrow(0, 0, bytes)));
      EXPECT_TRUE(found.narrow(0, bytes, kBeyond).eq(kUntouched).all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace adtrain
