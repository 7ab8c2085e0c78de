#include "checkpoint/CheckpointStore.h"

#include <algorithm>
#include <functional>
#include <set>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "base/Error.h"
#include "base/File.h"
#include "checkpoint/Manifest.h"
#include "checkpoint/Safetensors.h"
#include "checkpoint/SmallSnapshots.h"
#include "support/FullDisk.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

void flip_last_byte(const fs::path& file) {
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(file, bytes);
}

TEST(CheckpointStore, BringsBackWhatWasSaved) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path() / "checkpoints", 2);
  EXPECT_TRUE(store.empty());
  const Snapshot written = random_snapshot(7);
  store.save(written);
  EXPECT_FALSE(store.empty());
  const CheckpointStore::Found found = store.newest();
  expect_same(found.snapshot, written);
  EXPECT_EQ(found.path.filename(), "step-7");
  EXPECT_THAT(found.passed_over, IsEmpty());
  EXPECT_EQ(names_in(found.path),
            (std::set<std::string>{"manifest.json", "model.safetensors", "optimizer.safetensors"}));
}

TEST(CheckpointStore, KeepsTheNewestAndLatestPointsToTheLast) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 3);
  for (const int64_t step : {5, 10, 100, 9000, 10000}) store.save(random_snapshot(step));
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"latest", "step-100", "step-9000", "step-10000"}));
  EXPECT_EQ(fs::read_symlink(folder.path() / "latest"), "step-10000");
  EXPECT_EQ(CheckpointStore::load(folder.path() / "latest").step, 10000);
}

TEST(CheckpointStore, KeepsTwoEvenWhenAskedForFewer) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 0);
  for (const int64_t step : {1, 2, 3}) store.save(random_snapshot(step));
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-2", "step-3"}));
}

TEST(CheckpointStore, KeepsTheBestUntilAnotherIsBetter) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  EXPECT_FALSE(store.best());
  store.save(random_snapshot(10));
  EXPECT_THAT(store.keep_best({.step = 10, .held_out_return = 2.5, .measured = {{"tasks", {1, 2}}}}),
              IsEmpty());
  for (const int64_t step : {20, 30, 40}) store.save(random_snapshot(step));
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"step-10", "step-30", "step-40", "latest", "best", "best.json"}));
  EXPECT_EQ(fs::read_symlink(folder.path() / "best"), "step-10");
  EXPECT_EQ(CheckpointStore::load(folder.path() / "best").step, 10);

  // As another process finds it.
  const CheckpointStore later(folder.path(), 2);
  ASSERT_TRUE(later.best());
  EXPECT_EQ(later.best()->step, 10);
  EXPECT_EQ(later.best()->held_out_return, 2.5);
  EXPECT_EQ(later.best()->measured.dump(), R"({"tasks":[1,2]})");
  EXPECT_EQ(later.newest().snapshot.step, 40) << "the best one is not what a run goes on from";

  later.keep_best({.step = 40, .held_out_return = 3});
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"step-30", "step-40", "latest", "best", "best.json"}));
  EXPECT_EQ(fs::read_symlink(folder.path() / "best"), "step-40");
}

TEST(CheckpointStore, ARunThatWentBackForgetsABestOneOfItsFormerFuture) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 3);
  for (const int64_t step : {10, 20, 30}) store.save(random_snapshot(step));
  store.keep_best({.step = 10, .held_out_return = 1});
  store.save(random_snapshot(20));
  EXPECT_EQ(store.best()->step, 10);
  store.keep_best({.step = 20, .held_out_return = 2});
  store.save(random_snapshot(20));
  EXPECT_FALSE(store.best());
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-10", "step-20", "latest"}));
}

TEST(CheckpointStore, KilledBeforeTheLinkToTheBestWasRepointedTheNextSaveRepointsIt) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  for (const int64_t step : {10, 20}) store.save(random_snapshot(step));
  store.keep_best({.step = 10, .held_out_return = 1});
  BestCheckpoint{.step = 20, .held_out_return = 2}.write(folder.path());
  EXPECT_EQ(fs::read_symlink(folder.path() / "best"), "step-10");
  store.save(random_snapshot(30));
  EXPECT_EQ(fs::read_symlink(folder.path() / "best"), "step-20");
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{20, 30}));
}

TEST(CheckpointStore, ABestOneThatIsGoneOrUnreadableIsNone) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  store.save(random_snapshot(10));
  store.keep_best({.step = 10, .held_out_return = 1});
  fs::remove_all(folder.path() / "step-10");
  EXPECT_FALSE(store.best());
  store.save(random_snapshot(20));
  store.keep_best({.step = 20, .held_out_return = 1});
  write_file(folder.path() / "best.json", "{\"step\": ");
  EXPECT_FALSE(store.best());
}

TEST(CheckpointStore, LeavesOtherPeoplesFilesAlone) {
  const TemporaryFolder folder;
  for (const char* name : {"notes.txt", "step-x", "step-", "step-1.bak"})
    write_file(folder.path() / name, "mine");
  CheckpointStore store(folder.path(), 2);
  for (const int64_t step : {1, 2, 3}) store.save(random_snapshot(step));
  for (const char* name : {"notes.txt", "step-x", "step-", "step-1.bak"})
    EXPECT_EQ(read_file(folder.path() / name), "mine");
}

TEST(CheckpointStore, WhatAKilledRunLeftIsNeitherReadNorKept) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  store.save(random_snapshot(1));
  fs::copy(folder.path() / "step-1", folder.path() / "step-2.tmp");  // killed just before the rename
  fs::create_directory_symlink("step-1", folder.path() / "latest.tmp");
  EXPECT_EQ(store.newest().snapshot.step, 1);
  store.save(random_snapshot(2));
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-1", "step-2"}));
}

TEST(CheckpointStore, KilledBeforeLatestWasRepointedStillFindsTheNewest) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  for (const int64_t step : {1, 2}) store.save(random_snapshot(step));
  fs::remove(folder.path() / "latest");
  fs::create_directory_symlink("step-1", folder.path() / "latest");
  EXPECT_EQ(store.newest().snapshot.step, 2);
}

struct Damage {
  const char* label;
  std::function<void(const fs::path&)> apply;
  std::vector<std::string> words;
};

class CheckpointStoreFallback : public testing::TestWithParam<Damage> {};

TEST_P(CheckpointStoreFallback, TakesTheOneBeforeAndSaysWhy) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  const Snapshot older = random_snapshot(1);
  store.save(older);
  store.save(random_snapshot(2));
  GetParam().apply(folder.path() / "step-2");

  const CheckpointStore::Found found = store.newest();
  expect_same(found.snapshot, older);
  ASSERT_EQ(found.passed_over.size(), 1U);
  EXPECT_THAT(found.passed_over[0], HasSubstr("step-2"));
  for (const std::string& words : GetParam().words) EXPECT_THAT(found.passed_over[0], HasSubstr(words));

  GetParam().apply(folder.path() / "step-1");
  EXPECT_THAT(failure_of([&] { store.newest(); }),
              AllOf(HasSubstr("no usable checkpoint"), HasSubstr("step-1"), HasSubstr("step-2")));
}

INSTANTIATE_TEST_SUITE_P(
    CheckpointStore, CheckpointStoreFallback,
    testing::Values(Damage{"flipped_model",
                           [](const fs::path& path) { flip_last_byte(path / "model.safetensors"); },
                           {"model.safetensors", "checksum"}},
                    Damage{"flipped_optimizer",
                           [](const fs::path& path) { flip_last_byte(path / "optimizer.safetensors"); },
                           {"optimizer.safetensors", "checksum"}},
                    Damage{"truncated",
                           [](const fs::path& path) { fs::resize_file(path / "model.safetensors", 100); },
                           {"model.safetensors", "100 bytes"}},
                    Damage{"missing_file",
                           [](const fs::path& path) { fs::remove(path / "optimizer.safetensors"); },
                           {"incomplete", "optimizer.safetensors"}},
                    Damage{"missing_manifest",
                           [](const fs::path& path) { fs::remove(path / "manifest.json"); },
                           {"not a complete checkpoint"}},
                    Damage{"empty_manifest",
                           [](const fs::path& path) { write_file(path / "manifest.json", ""); },
                           {"damaged"}},
                    Damage{"empty_folder",
                           [](const fs::path& path) {
                             fs::remove_all(path);
                             fs::create_directory(path);
                           },
                           {"not a complete checkpoint"}}),
    [](const auto& damage) { return std::string(damage.param.label); });

TEST(CheckpointStore, TheWeightsAloneAreReadWithoutTheOptimizer) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  Snapshot expected = random_snapshot(1);
  store.save(expected);
  expected.optimizer.clear();
  fs::remove(folder.path() / "step-1" / "optimizer.safetensors");
  expect_same(store.newest(CheckpointPart::kWeights).snapshot, expected);
  expect_same(CheckpointStore::load(folder.path() / "step-1", CheckpointPart::kWeights), expected);
  EXPECT_THROW(CheckpointStore::load(folder.path() / "step-1"), CheckpointError);
  flip_last_byte(folder.path() / "step-1" / "model.safetensors");
  EXPECT_THROW(store.newest(CheckpointPart::kWeights), CheckpointError);
}

TEST(CheckpointStore, ARunThatWentBackReplacesItsFormerFuture) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  store.save(random_snapshot(10));
  store.save(random_snapshot(20));
  flip_last_byte(folder.path() / "step-20" / "model.safetensors");
  store.save(random_snapshot(15));
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-10", "step-15"}));
  const Snapshot again = random_snapshot(15);
  store.save(again);
  expect_same(store.newest().snapshot, again);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-10", "step-15"}));
}

TEST(CheckpointStore, WithoutAnyCheckpointSaysWhereItLooked) {
  const TemporaryFolder folder;
  const fs::path checkpoints = folder.path() / "runs" / "x" / "checkpoints";
  EXPECT_THAT(failure_of([&] { CheckpointStore(checkpoints, 2).newest(); }),
              AllOf(HasSubstr("no checkpoint in"), HasSubstr(checkpoints.string())));
  EXPECT_THAT(failure_of([&] { CheckpointStore::load(checkpoints / "step-3"); }), HasSubstr("step-3"));
}

TEST(CheckpointStore, AFolderThatCannotBeReadIsNotTakenForAnEmptyOne) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "checkpoints";
  write_file(file, "");
  EXPECT_THAT(failure_of([&] { CheckpointStore(file, 2).newest(); }),
              AllOf(HasSubstr(file.string()), HasSubstr("cannot be read (Not a directory)")));
}

TEST(CheckpointStore, NamesCarryNoWrapperPrefix) {
  const TemporaryFolder folder;
  Snapshot wrapped = random_snapshot(1);
  wrapped.model[0].name = "module.embed.weight";
  CheckpointStore(folder.path(), 2).save(wrapped);
  const Snapshot read = CheckpointStore::load(folder.path() / "step-1");
  EXPECT_NE(std::ranges::find(read.model, "embed.weight", &NamedTensor::name), read.model.end());
}

/// After a failed save of step 2: the older checkpoint is whole, nothing half-written is left, and saving
/// works again once the cause is gone.
void expect_step_1_untouched(const fs::path& folder, const Snapshot& first) {
  expect_same(CheckpointStore(folder, 2).newest().snapshot, first);
  EXPECT_EQ(names_in(folder), (std::set<std::string>{"latest", "step-1"}));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-1");
}

TEST(CheckpointStore, AWriteThatFailsLeavesTheOlderCheckpointIntact) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  const Snapshot first = random_snapshot(1);
  store.save(first);
  std::string failure;
  {
    const FileSizeLimit limit(100'000);
    failure = failure_of([&] { store.save(random_snapshot(2, 100'000)); });
  }
  EXPECT_THAT(failure, AllOf(HasSubstr("File too large"), HasSubstr("step-2.tmp"), HasSubstr("untouched")));
  expect_step_1_untouched(folder.path(), first);
  store.save(random_snapshot(2, 100'000));
  EXPECT_EQ(store.newest().snapshot.step, 2);
}

TEST(CheckpointStore, WithoutOlderCheckpointsNoneAreCalledUntouched) {
  const TemporaryFolder folder;
  const FileSizeLimit limit(100'000);
  EXPECT_THAT(failure_of([&] { CheckpointStore(folder.path(), 2).save(random_snapshot(2, 100'000)); }),
              AllOf(HasSubstr("File too large"), HasSubstr("ulimit -f"), Not(HasSubstr("untouched"))));
}

TEST(CheckpointStore, AFullDiskLeavesTheOlderCheckpointIntact) {
  const SmallDisk disk(256);
  if (!disk.mounted()) GTEST_SKIP() << "mounting takes root";
  const fs::path checkpoints = disk.path() / "checkpoints";
  CheckpointStore store(checkpoints, 2);
  const Snapshot first = random_snapshot(1);
  store.save(first);
  EXPECT_THAT(failure_of([&] { store.save(random_snapshot(2, 100'000)); }),
              AllOf(HasSubstr("No space left"), HasSubstr("0 B are free"), HasSubstr("untouched")));
  expect_step_1_untouched(checkpoints, first);
  store.save(random_snapshot(3));
  EXPECT_EQ(store.newest().snapshot.step, 3);
}

TEST(CheckpointStore, WhatFailsAroundACheckpointIsAWarningAndTheStepIsSafe) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  write_file_atomically(folder.path() / "latest" / "in the way", "");  // a folder no link can replace
  const Snapshot written = random_snapshot(1);
  const std::vector<std::string> warnings = store.save(written);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("latest"));
  expect_same(store.newest().snapshot, written);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-1"}));
}

TEST(CheckpointStore, WhatCannotBeDeletedIsNoCheckpointAnyMore) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  for (const int64_t step : {1, 2}) store.save(random_snapshot(step));
  const fs::path in_the_way = folder.path() / "step-1" / "optimizer.safetensors";
  write_file(folder.path() / "other", "");
  if (mount((folder.path() / "other").c_str(), in_the_way.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "mounting takes root";
  }
  const std::vector<std::string> warnings = store.save(random_snapshot(3));
  umount((folder.path() / "step-1.pruned.tmp" / "optimizer.safetensors").c_str());
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("not deleted"), HasSubstr("step-1")));
  EXPECT_EQ(store.newest().snapshot.step, 3);
  EXPECT_THAT(names_in(folder.path()), testing::Not(testing::Contains("step-1")));
  EXPECT_THAT(store.save(random_snapshot(4)), IsEmpty());
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "other", "step-3", "step-4"}));
}

TEST(CheckpointStore, VerifiesOneStepAndFindsTheNewestThatDoes) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), 2);
  EXPECT_EQ(store.newest_verified(), std::nullopt);
  EXPECT_THAT(failure_of([&] { store.verify(1); }), HasSubstr("step-1"));
  for (const int64_t step : {1, 2}) store.save(random_snapshot(step));
  EXPECT_EQ(failure_of([&] { store.verify(2); }), "none");
  flip_last_byte(folder.path() / "step-2" / "optimizer.safetensors");
  EXPECT_THAT(failure_of([&] { store.verify(2); }), HasSubstr("optimizer.safetensors"));
  EXPECT_EQ(store.newest_verified(), 1);
}

TEST(CheckpointStore, AFolderThatCannotBeMadeIsACheckpointError) {
  EXPECT_THAT(failure_of([] { CheckpointStore("/proc/adtrain/checkpoints", 2).save(random_snapshot(1)); }),
              HasSubstr("/proc/adtrain"));
}

TEST(CheckpointStore, ARunsFolderThatWasMovedAwayIsNotMadeAnew) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  fs::create_directory(run);
  CheckpointStore store(run / "checkpoints", 2);
  store.save(random_snapshot(1));
  fs::rename(run, folder.path() / "moved");
  EXPECT_THAT(failure_of([&] { store.save(random_snapshot(2)); }), HasSubstr("No such file or directory"));
  EXPECT_FALSE(fs::exists(run));
}

TEST(CheckpointStore, AWrongModelIsToldByNameAndShape) {
  const TemporaryFolder folder;
  CheckpointStore(folder.path(), 2).save(random_snapshot(1));
  ParameterBuffer other({{"embed.weight", at::zeros({64, 8}).requires_grad_()},
                         {"head.bias", at::zeros({5}).requires_grad_()}});
  const Snapshot read = CheckpointStore::load(folder.path() / "step-1");
  EXPECT_THAT(failure_of([&] { other.load(read.model); }),
              AllOf(HasSubstr("embed.weight"), HasSubstr("64, 4"), HasSubstr("64, 8")));
}

}  // namespace
}  // namespace adtrain
