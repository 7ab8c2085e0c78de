#include "run/figures/RunGroups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "WrittenRuns.h"
#include "run/RunConfig.h"

namespace adtrain {
namespace {

using testing::ElementsAre;

std::vector<std::string> labels(const std::vector<RunGroup>& groups) {
  std::vector<std::string> found;
  for (const RunGroup& group : groups) found.push_back(group.label);
  return found;
}

TEST(RunGroups, RunsThatDifferInSeedsAndNamesAreOneGroup) {
  const WrittenRuns written;
  const std::vector<RecordedRun> runs = {
      written.add("a", "seed: 1\nrun_name: a\nlr: 0.003\n"),
      written.add("b", "seed: 1\nrun_name: b\nlr: 0.001\n"),
      written.add("c", "seed: 2\nrun_name: c\nlr: 3.0e-3\neval_seed: 4\nnum_workers: 2\n")};
  const std::vector<RunGroup> groups = group_runs(runs, {});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_THAT(groups[0].members, ElementsAre(0, 2));
  EXPECT_THAT(groups[1].members, ElementsAre(1));
  EXPECT_THAT(labels(groups), ElementsAre("lr 0.003", "lr 0.001"));
}

TEST(RunGroups, ALabelHasAllKeysInWhichAnyTwoGroupsDiffer) {
  const WrittenRuns written;
  const std::vector<RecordedRun> runs = {
      written.add("a", "lr: 0.003\ntf_n_layer: 4\n"), written.add("b", "lr: 0.001\ntf_n_layer: 4\n"),
      written.add("c", "lr: 0.003\ntf_n_layer: 8\nkey_of_the_future: 1\n")};
  EXPECT_THAT(labels(group_runs(runs, {})), ElementsAre("lr 0.003, tf_n_layer 4, key_of_the_future none",
                                                        "lr 0.001, tf_n_layer 4, key_of_the_future none",
                                                        "lr 0.003, tf_n_layer 8, key_of_the_future 1"));
}

TEST(RunGroups, APieceThatFollowsFromItsBlockIsInNoLabel) {
  const WrittenRuns written;
  const std::string xland = "transformer_block: xland\ntf_norm: layer\ntf_qk_norm: \"off\"\n",
                    pre_norm = "transformer_block: pre_norm\ntf_norm: rms\ntf_qk_norm: \"off\"\n";
  const std::vector<RecordedRun> runs = {written.add("a", xland + "tf_positions: alibi\n"),
                                         written.add("b", pre_norm + "tf_positions: rotary\n"),
                                         written.add("c", pre_norm + "tf_positions: learned\n")};
  EXPECT_THAT(labels(group_runs({runs[0], runs[1]}, {})),
              ElementsAre("transformer_block xland", "transformer_block pre_norm"));
  const RecordedRun published =
      written.add("d", "transformer_block: pre_norm\ntf_norm: auto\ntf_qk_norm: auto\ntf_positions: auto\n");
  EXPECT_THAT(labels(group_runs({runs[0], published}, {})),
              ElementsAre("transformer_block xland", "transformer_block pre_norm"));
  EXPECT_THAT(labels(group_runs({runs[0], runs[2]}, {})),
              ElementsAre("transformer_block xland, tf_positions alibi",
                          "transformer_block pre_norm, tf_positions learned"));
}

TEST(RunGroups, KeysMayBeAveragedOver) {
  const WrittenRuns written;
  const std::vector<RecordedRun> runs = {written.add("a", "env_split_seed: 0\n"),
                                         written.add("b", "env_split_seed: 1\n")};
  EXPECT_THAT(labels(group_runs(runs, {})), ElementsAre("env_split_seed 0", "env_split_seed 1"));
  EXPECT_THAT(labels(group_runs(runs, {"env_split_seed"})), ElementsAre(""));
}

TEST(RunGroups, KeysThatOnlyRepeatAreKeys) {
  RunConfig defaults;
  size_t repeating = 0;
  for (const Section& section : defaults.sections()) {
    for (const Key& key : section.keys()) repeating += only_repeats(key.name()) ? 1 : 0;
  }
  EXPECT_EQ(repeating, 26U) << "a key was renamed: src/run/figures/RunGroups.cpp lists them";
  EXPECT_FALSE(only_repeats("lr"));
}

}  // namespace
}  // namespace adtrain
