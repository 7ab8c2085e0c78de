#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "support/Python.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

/// A configuration of configs/run with its environments, and what they need.
struct Example {
  const char* name;
  const char* package;
  const char* tasks;  ///< two of them
};

void PrintTo(const Example& example, std::ostream* out) {
  *out << example.name;
}

class Examples : public testing::TestWithParam<Example> {};

/// As its page says, of two tasks and shortened.
TEST_P(Examples, AreCollectedTrainedOnAndEvaluated) {
  const auto [name, package, tasks] = GetParam();
  if (!has_python_package(package)) GTEST_SKIP() << "no " << package << " in " << ADTRAIN_PYTHON;
  const SmallRun run;
  const Finished finished = run.shell(fmt::format(
      R"(set -e
export PYTHONPATH={0}/configs
short="{0}/configs/run/{1}.yaml --set env_python={2}"
$adtrain collect $short --set tasks={3} --set total_source_timesteps=6400
$adtrain train $short --set train_tasks={4} --set train_timesteps=12 --set n_transit=40 --set eval_interval=0 \
  --set ckpt_interval=12 --set num_warmup_steps=2 --set summary_interval=1 --set episode_stride=2
$adtrain evaluate runs/{1} --set env_python={2} --set eval_episodes=2 --set eval_repeats=2 --set eval_tasks={5} \
  --set env_random_episodes=1)",
      ADTRAIN_SOURCE_DIR, name, ADTRAIN_PYTHON, tasks, tasks[0], tasks + 2));
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("mean return at the end of learning"));
  EXPECT_THAT(finished.output, HasSubstr("done: 12 steps"));
  EXPECT_THAT(finished.output, HasSubstr("in-context return: episode 1 "));
  const std::vector<nlohmann::json> losses = run.metrics(name, "loss");
  EXPECT_LT(losses.back().at("loss"), losses.front().at("loss"));
}

INSTANTIATE_TEST_SUITE_P(, Examples,
                         testing::Values(Example{"cartpole", "gymnasium", "0,1"},
                                         Example{"pendulum", "mujoco", "0,1"},
                                         Example{"reacher", "mujoco", "0,1"}),
                         [](const auto& example) { return std::string(example.param.name); });

}  // namespace
}  // namespace adtrain
