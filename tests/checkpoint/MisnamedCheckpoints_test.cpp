#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/CheckpointStore.h"
#include "checkpoint/SmallSnapshots.h"
#include "support/TemporaryFolder.h"

// Checkpoints in folders that are named after other steps, as a backup or a rename by hand leaves them.

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

const auto kIsNamedWrongly = AllOf(HasSubstr("step-900 is named after step 900"), HasSubstr("says step 100"),
                                   HasSubstr("rename it back to step-100"));

TEST(MisnamedCheckpoints, AFolderThatIsNamedAfterAnotherStepTakesNoOthersPlace) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 3);
  const Snapshot newest = random_snapshot(200);
  for (const Snapshot& snapshot : {random_snapshot(100), random_snapshot(150), newest}) store.save(snapshot);
  fs::rename(folder.path() / "step-100", folder.path() / "step-900");

  const CheckpointStore::Found found = store.newest();
  expect_same(found.snapshot, newest);
  ASSERT_EQ(found.passed_over.size(), 1U);
  EXPECT_THAT(found.passed_over[0], kIsNamedWrongly);
  EXPECT_THAT(failure_of([&] { store.verify(900); }), kIsNamedWrongly);
  EXPECT_THAT(failure_of([&] { CheckpointStore::load(folder.path() / "step-900"); }), kIsNamedWrongly);
  EXPECT_EQ(store.newest_verified(), 200);
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{150, 200, 900}));
  EXPECT_EQ(store.steps_as_named(), (std::vector<int64_t>{150, 200}));

  EXPECT_THAT(store.save(random_snapshot(250)), IsEmpty());
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"latest", "step-150", "step-200", "step-250", "step-900"}));
  EXPECT_THAT(store.keep_best({.step = 250, .held_out_return = 1}), IsEmpty());
  EXPECT_THAT(store.save(random_snapshot(300)), IsEmpty());
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{200, 250, 300, 900}));

  fs::rename(folder.path() / "step-900", folder.path() / "step-100");
  EXPECT_THAT(store.newest().passed_over, IsEmpty());
}

TEST(MisnamedCheckpoints, ANewerOneUnderTheNameOfAnOlderStepIsNamedToo) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  for (const int64_t step : {100, 200}) store.save(random_snapshot(step));
  fs::rename(folder.path() / "step-200", folder.path() / "step-50");
  const CheckpointStore::Found found = store.newest();
  EXPECT_EQ(found.snapshot.step, 100);
  ASSERT_EQ(found.passed_over.size(), 1U);
  EXPECT_THAT(found.passed_over[0], AllOf(HasSubstr("step-50"), HasSubstr("says step 200")));
  for (const int64_t step : {110, 120, 130}) store.save(random_snapshot(step));
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{50, 120, 130})) << "it may be the only one of step 200";
}

TEST(MisnamedCheckpoints, WhatStandsInAStepsPlaceAndIsOfAnotherIsKeptUnderAnotherName) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  for (const int64_t step : {100, 200}) store.save(random_snapshot(step));
  fs::rename(folder.path() / "step-100", folder.path() / "step-300");
  const Snapshot written = random_snapshot(300);
  const std::vector<std::string> warnings = store.save(written);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("step-300.of-another-step"), HasSubstr("says step 100")));
  expect_same(store.newest().snapshot, written);
  store.save(random_snapshot(400));
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"latest", "step-300", "step-300.of-another-step", "step-400"}));
  EXPECT_EQ(CheckpointStore::load(folder.path() / "step-300.of-another-step").step, 100);
}

TEST(MisnamedCheckpoints, ABestOneThatIsAnotherStepIsNone) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 3);
  for (const int64_t step : {100, 200}) store.save(random_snapshot(step));
  store.keep_best({.step = 200, .held_out_return = 1});
  fs::rename(folder.path() / "step-200", folder.path() / "step-300");
  EXPECT_FALSE(store.best());
  fs::rename(folder.path() / "step-100", folder.path() / "step-200");
  EXPECT_FALSE(store.best());
  EXPECT_THAT(failure_of([&] { CheckpointStore::load(folder.path() / "best"); }),
              AllOf(HasSubstr("step-200"), HasSubstr("says step 100")));
}

}  // namespace
}  // namespace adtrain
