#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "support/Python.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

constexpr const char* kCollect = "$adtrain collect $short --set tasks=0,1 --set total_source_timesteps=6400";

/// Programs that JAX optimises less are compiled in half the time.
constexpr const char* kCollectXland =
    "JAX_DISABLE_MOST_OPTIMIZATIONS=1 $python $configs/xland_histories.py --rulesets 2 --environments 8 "
    "--streams 2 "
    "--steps 640 --explored 8 --explore-steps 32 --least-return 0";

/// A configuration of configs/run with its environments, and what they need.
struct Example {
  const char* name;
  const char* package;
  const char* collect = kCollect;  ///< histories of two tasks
  const char* smaller = "";        ///< settings for a network that takes less time
};

void PrintTo(const Example& example, std::ostream* out) {
  *out << example.name;
}

class Examples : public testing::TestWithParam<Example> {};

/// As its page says, of two tasks and shortened.
TEST_P(Examples, AreCollectedTrainedOnAndEvaluated) {
  const auto [name, package, collect, smaller] = GetParam();
  if (!has_python_package(package)) GTEST_SKIP() << "no " << package << " in " << ADTRAIN_PYTHON;
  const SmallRun run;
  const Finished finished = run.shell(fmt::format(
      R"(set -e
configs={0}/configs python={2}
export PYTHONPATH=$configs
short="$configs/run/{1}.yaml --set env_python=$python"
{3}
$adtrain train $short --set train_tasks=0 --set train_timesteps=12 --set n_transit=40 --set eval_interval=0 \
  --set ckpt_interval=12 --set num_warmup_steps=2 --set summary_interval=1 --set episode_stride=2 {4}
$adtrain evaluate runs/{1} --set env_python=$python --set eval_episodes=2 --set eval_repeats=2 --set eval_tasks=1 \
  --set env_random_episodes=1)",
      ADTRAIN_SOURCE_DIR, name, ADTRAIN_PYTHON, collect, smaller));
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("mean return"));
  EXPECT_THAT(finished.output, HasSubstr("done: 12 steps"));
  EXPECT_THAT(finished.output, HasSubstr("in-context return: episode 1 "));
  const std::vector<nlohmann::json> losses = run.metrics(name, "loss");
  EXPECT_LT(losses.back().at("loss"), losses.front().at("loss"));
}

INSTANTIATE_TEST_SUITE_P(
    , Examples,
    testing::Values(Example{"cartpole", "gymnasium"}, Example{"pendulum", "mujoco"},
                    Example{"reacher", "mujoco"},
                    Example{"xland", "xminigrid", kCollectXland,
                            "--set tf_n_embd=64 --set tf_n_layer=2 --set lr=0.005 --set mixed_precision=no"}),
    [](const auto& example) { return std::string(example.param.name); });

}  // namespace
}  // namespace adtrain
