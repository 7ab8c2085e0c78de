#include "run/own/OwnTasksKeys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class OwnTasksKeys : public testing::Test {
 protected:
  RunConfig load(const std::string& yaml) {
    write_file(folder_.path() / "own.yaml", yaml);
    notices_.clear();
    return RunConfig::load(folder_.path() / "own.yaml", {}, notices_);
  }
  std::string complaint(const std::string& yaml) {
    try {
      load(yaml);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no complaint";
  }

  TemporaryFolder folder_;
  std::vector<std::string> notices_;
};

constexpr const char* kOwn = "env: CartPole\nhistories: x.hdf5\n";

TEST_F(OwnTasksKeys, SpacesAreMapsOrJson) {
  const std::string maps =
      std::string(kOwn) +
      "observation_space:\n  type: Box\n  dtype: float32\n  shape: [2]\n  low: [-1, -.inf]\n"
      "  high: [1.5, .inf]\naction_space: {type: Discrete, n: 2}\n";
  const RunConfig config = load(maps);
  const TaskSpaces spaces = config.environment.spaces().front();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(spaces.observation, Space::box({2}, {-1, -kInfinity}, {1.5, kInfinity}));
  EXPECT_EQ(spaces.action, Space::discrete(2));
  const RunConfig again = load(config.resolved_yaml());
  EXPECT_EQ(again.environment.spaces(), config.environment.spaces()) << "what is saved means the same";
  EXPECT_EQ(again.resolved_yaml(), config.resolved_yaml());
  const RunConfig json =
      load(std::string(kOwn) + R"(action_space: '{"type": "MultiDiscrete", "nvec": [3, 4]}')"
                               "\n"
                               "observation_space: {type: MultiDiscrete, nvec: [[156, 156]]}\n"
                               "observation_packing: [13, 12]\n");
  EXPECT_EQ(json.environment.spaces().front().action, Space::multi_discrete({2}, {3, 4}));
  EXPECT_THAT(json.environment.spaces().front().packed_digits, ElementsAre(13, 12));
}

TEST_F(OwnTasksKeys, WhatIsNoSpaceIsNamedWithItsLine) {
  EXPECT_THAT(complaint(std::string(kOwn) + "action_space: {type: Discreet, n: 2}\n"),
              AllOf(HasSubstr("own.yaml:3: action_space: it describes no space"), HasSubstr("Discreet")));
  EXPECT_THAT(complaint(std::string(kOwn) + "observation_space: Box\n"),
              HasSubstr("own.yaml:3: observation_space"));
  EXPECT_THAT(complaint(std::string(kOwn) + "observation_packing: 13\n"),
              AllOf(HasSubstr("own.yaml:3: observation_packing: found '13'"), HasSubstr("such as [13, 12]")));
  EXPECT_THAT(complaint(std::string(kOwn) + "observation_packing: [13, x]\n"), HasSubstr("the list [13, x]"));
}

TEST_F(OwnTasksKeys, AnEnvThatIsNoFamilysNameNeedsTasks) {
  EXPECT_THAT(complaint("seed: 1\nenv: darkrom\n"),
              AllOf(HasSubstr("own.yaml:2: env: found 'darkrom'"), HasSubstr("did you mean darkroom?"),
                    HasSubstr("env_worker: module:function")));
  EXPECT_EQ(complaint("env: CartPole\nenv_worker: my_envs:make_env\n"), "no complaint");
  EXPECT_THAT(notices_, testing::Not(Contains(HasSubstr("env:"))));
  EXPECT_EQ(complaint("env: darkrom\nhistories: x.hdf5\n"), "no complaint");
  EXPECT_THAT(notices_, Contains(AllOf(HasSubstr("'darkrom' is a label"), HasSubstr("called darkroom"))));
}

TEST_F(OwnTasksKeys, AllStepsAndStreamsAreUsedUnlessTheyAreGiven) {
  EXPECT_EQ(load(kOwn).data.train_source_timesteps, kAllThereAre);
  EXPECT_EQ(load(kOwn).data.train_n_stream, kAllThereAre);
  EXPECT_EQ(load(std::string(kOwn) + "train_source_timesteps: 500\n").data.train_source_timesteps, 500);
  EXPECT_EQ(load("env: darkroom\n").data.train_source_timesteps, 1000);
}

TEST_F(OwnTasksKeys, KeysOfTheOtherKindAreRefused) {
  EXPECT_THAT(complaint("env: darkroom\nhistories: x.hdf5\nwindow_stride: 2\ntrain_n_stream: all\n"),
              AllOf(HasSubstr("own.yaml:2: histories: found it with env darkroom"),
                    HasSubstr("own.yaml:3: window_stride"), HasSubstr("own.yaml:4: train_n_stream")));
  EXPECT_THAT(complaint(std::string(kOwn) + "horizon: 20\nreturn_interval: 10\n"),
              AllOf(HasSubstr("own.yaml:3: horizon"), HasSubstr("own.yaml:4: return_interval: found 10"),
                    HasSubstr("env_worker")));
  EXPECT_EQ(load(std::string(kOwn) + "return_interval: 10\nenv_worker: a:b\n").training.returns.interval, 10);
}

TEST_F(OwnTasksKeys, PackingIsRefusedWhereItDoesNotApply) {
  const std::string packed = std::string(kOwn) + "sequence_packing: true\n";
  EXPECT_TRUE(load(packed + "loss_positions: all\n").data.sequence_packing);
  EXPECT_TRUE(load(packed + "loss_positions: all\n").model_shape().packed);
  EXPECT_THAT(complaint(packed),
              HasSubstr("own.yaml:3: sequence_packing: found true with loss_positions: last"));
  EXPECT_THAT(complaint(packed + "loss_positions: all\ntask_weights: tasks\nlast_fraction: 0.5\n"),
              AllOf(HasSubstr("found true with task_weights: tasks"),
                    HasSubstr("found true with last_fraction 0.5"), HasSubstr("or sequence_packing: false")));
  EXPECT_THAT(complaint("env: darkroom\nsequence_packing: true\nloss_positions: all\n"),
              HasSubstr("own.yaml:2: sequence_packing: found it with env darkroom"));
  EXPECT_THAT(complaint(packed + "loss_positions: all\nuse_compressed_context: true\n"),
              HasSubstr("found compressed context with tasks of your own"));
  EXPECT_THAT(complaint(packed + "loss_positions: all\nmodel: GPT2\n"), HasSubstr("found GPT2"));
}

}  // namespace
}  // namespace adtrain
