#include "run/ConfigChanges.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> texts_of(const std::vector<ConfigChange>& changes, bool free) {
  std::vector<std::string> texts;
  for (const ConfigChange& change : changes) {
    if (change.free == free) texts.push_back(change.text());
  }
  return texts;
}

std::vector<ConfigChange> changes(const RunConfig& before, const RunConfig& now, int64_t ranks_before = 1,
                                  int64_t ranks = 1) {
  return changes_between(before.resolved_yaml(), ranks_before, now, ranks);
}

TEST(ConfigChanges, AnEqualConfigurationHasNone) {
  EXPECT_THAT(changes({}, {}), IsEmpty());
}

TEST(ConfigChanges, KnowsWhatChangesTheMeaningOfARun) {
  RunConfig before, now;
  now.training.seed = 7;
  now.model.n_transit = 8;
  now.data.train_n_stream = 5;
  now.environment.train_env_ratio = 0.5;
  now.collection.alg_seed = 3;
  now.training.lr = 0.001;
  now.training.train_timesteps = 10;
  now.training.ckpt_interval = 3;
  now.run.device = DeviceChoice::kCpu;
  now.data.num_workers = 9;
  now.evaluation.eval_episodes = 3;
  now.distributed.bucket_megabytes = 5;
  const auto found = changes(before, now);
  EXPECT_EQ(texts_of(found, /*free=*/false).size(), 5U);
  EXPECT_EQ(texts_of(found, /*free=*/true).size(), 7U);
  EXPECT_THAT(texts_of(found, true), testing::Contains("lr 0.0003 → 0.001"));
  try {
    refuse_other_meaning(found, {"n_transit"}, "runs/x");
    FAIL() << "expected a ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("seed: 42 in the run, 7 now"), HasSubstr("train_n_stream: "),
                                    HasSubstr("--allow-changes train_env_ratio,alg_seed,train_n_stream,seed"),
                                    Not(HasSubstr("n_transit:")), Not(HasSubstr("lr"))));
  }
  refuse_other_meaning(found, {"n_transit", "seed", "train_env_ratio", "alg_seed", "train_n_stream"},
                       "runs/x");
}

TEST(ConfigChanges, ComparesTheGlobalBatchAndNotWhatItIsMadeOf) {
  RunConfig before, now;
  before.training.train_batch_size = 12;
  now.training.global_batch_size = 24;
  EXPECT_THAT(texts_of(changes(before, now, 2, 4), false), IsEmpty());
  EXPECT_THAT(texts_of(changes(before, now, 4, 4), false),
              ElementsAre("global_batch_size of 48 sequences → 24 sequences"));
  EXPECT_THAT(texts_of(changes(before, before, 2, 4), false),
              ElementsAre("global_batch_size of 24 sequences → 48 sequences"))
      << "train_batch_size on more ranks";
}

TEST(ConfigChanges, ReadsWhatOtherVersionsWrote) {
  const RunConfig now;
  const std::string yaml = now.resolved_yaml() + "key_of_the_future: 3\n";
  EXPECT_THAT(changes_between(yaml, 1, now, 1), IsEmpty());
  EXPECT_THAT(texts_of(changes_between("seed: 3\n", 1, now, 1), false), ElementsAre("seed 3 → 42"));
}

TEST(ConfigChanges, AKeyOfTheNetworkThatWasNotSavedHasTheValueThatItHadThen) {
  for (const std::string network : {"", "transformer_block: xland\n", "model: GPT2\n"}) {
    RunConfig decided = read_leniently(network);
    decided.model.decide();
    const std::string saved = decided.resolved_yaml(), line = "first_step: zeros\n";
    const size_t found = saved.find(line);
    ASSERT_NE(found, std::string::npos) << saved;
    const std::string earlier = std::string(saved).erase(found, line.size());
    EXPECT_THAT(changes_between(earlier, 1, decided, 1), IsEmpty()) << network;
    EXPECT_THAT(differences(values_of(earlier), values_of(saved)), IsEmpty()) << network;
  }
}

TEST(ConfigChanges, NamesOfKeysAreChecked) {
  check_key_names({"seed", "lr"}, "--over");
  try {
    check_key_names({"sed"}, "--over");
    FAIL() << "expected a ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--over: found 'sed'"), HasSubstr("did you mean seed?")));
  }
}

}  // namespace
}  // namespace adtrain
