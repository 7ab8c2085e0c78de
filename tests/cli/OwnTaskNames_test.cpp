#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "support/Python.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Tasks by their numbers. What is observed lies far elsewhere in each, so that another one's normalisation
/// shows.
constexpr const char* kNumbered = R"(
import lessons


class Elsewhere(lessons.Points):
    def observe(self):
        return super().observe() + 1000 * self.task


def make_env(task, seed):
    return Elsewhere(lessons.TASKS[int(task)])
)";

constexpr const char* kNamed = R"(
import numbered

TASKS = ["task 0", "task 1", "task 2"]


def make_env(task, seed):
    return numbered.make_env(TASKS.index(task), seed)
)";

constexpr const char* kConfig = R"(
env: lessons
env_worker: numbered:make_env
env_python: )" ADTRAIN_PYTHON R"(
env_random_episodes: 4
n_stream: 4
n_steps: 16
batch_size: 32
n_epochs: 2
total_source_timesteps: 1200
tasks: 0-2
train_tasks: 0,2
normalize_observations: true
run_name: own
tf_n_embd: 16
tf_n_layer: 1
tf_n_head: 2
n_transit: 20
loss_positions: all
train_timesteps: 10
global_batch_size: 8
lr: 0.01
eval_episodes: 3
eval_repeats: 2
eval_interval: 0
cpu_threads: 1
device: cpu
)";

/// Which tasks are the same ones, by numbers and by names, wherever these come from.
class OwnTaskNames : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_python_package("gymnasium")) GTEST_SKIP() << "no gymnasium in " << ADTRAIN_PYTHON;
    run_.write("own.yaml", kConfig);
    run_.write("lessons.py", read_file(ADTRAIN_SOURCE_DIR "/tests/environments/worker/lessons.py"));
    run_.write("numbered.py", kNumbered);
    run_.write("texts.py", "from numbered import make_env\n\nTASKS = ['0', '1', '2']\n");
    run_.write("named.py", kNamed);
  }

  SmallRun run_;
};

/// Histories call them `task 0` and so on: they are the same ones by their numbers, by texts of the numbers
/// and by these names.
TEST_F(OwnTaskNames, WithoutTasksTheyKeepTheirScalesAndScores) {
  const Finished collected = run_.adtrain("collect own.yaml");
  ASSERT_EQ(collected.exit_code, 0) << collected.output;
  const Finished trained = run_.adtrain("train own.yaml");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const auto summary_of = [&](const std::string& module, const std::string& tasks) {
    const Finished evaluated = run_.adtrain("evaluate runs/own --json --set env_worker=" + module +
                                            ":make_env --set eval_tasks=" + tasks + " 2>/dev/null");
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
    return nlohmann::json::parse(evaluated.output);
  };
  const auto named = summary_of("named", "all");
  for (const std::string module : {"numbered", "texts"}) {
    const auto summary = summary_of(module, "all");
    EXPECT_EQ(summary.at("mean"), named.at("mean")) << module;
    ASSERT_TRUE(summary.contains("normalized_score")) << module;
    EXPECT_EQ(summary.at("normalized_score").at("mean"), named.at("normalized_score").at("mean")) << module;
  }
  EXPECT_EQ(summary_of("texts", "test").at("tasks"), nlohmann::json({1})) << "training saw the others";
}

TEST_F(OwnTaskNames, NumbersThatNoRunCouldTrainOnAreNotCollected) {
  const Finished large = run_.adtrain("collect own.yaml --set tasks=1700000000");
  EXPECT_EQ(large.exit_code, 2) << large.output;
  EXPECT_THAT(large.output, HasSubstr("tasks: found task 1700000000; expected numbers up to 99999999"));
}

TEST_F(OwnTaskNames, TwoTasksOfOneNameAreRefused) {
  run_.write("twice.py", "from numbered import make_env\n\nTASKS = [1, 2, '1']\n");
  const Finished twice = run_.adtrain("collect own.yaml --set env_worker=twice:make_env");
  EXPECT_EQ(twice.exit_code, 4) << twice.output;
  EXPECT_THAT(twice.output,
              AllOf(HasSubstr("twice:make_env"), HasSubstr("found 1 as the name of task 0 and of task 2")));
}

TEST_F(OwnTaskNames, KeepsTheFileOnlyOfTheSameTasks) {
  const auto collect = [&](const std::string& tasks) {
    return run_.adtrain("collect own.yaml --set env_worker=lessons:make_names --set tasks=" + tasks);
  };
  ASSERT_EQ(collect("null").exit_code, 0);
  const std::string sound = run_.read("lessons.py"), line = "TASKS = [\"low\", \"middle\", \"high\"]";
  ASSERT_NE(sound.find(line), std::string::npos);
  const auto collect_from = [&](const std::string& tasks, const std::string& chosen = "null") {
    std::string edited = sound;
    run_.write("lessons.py", edited.replace(edited.find(line), line.size(), "TASKS = " + tasks));
    return collect(chosen);
  };
  const Finished moved = collect_from("['new', 'low', 'middle']");
  EXPECT_EQ(moved.exit_code, 4) << moved.output;
  EXPECT_THAT(moved.output,
              AllOf(HasSubstr("was collected with other tasks of lessons:make_names: task 0 was "
                              "'low' and is 'new', task 1 was 'middle' and is 'low'"),
                    HasSubstr("--overwrite")));
  const Finished grown = collect_from("['low', 'middle', 'high', 'higher', 'highest']");
  EXPECT_EQ(grown.exit_code, 4) << grown.output;
  EXPECT_THAT(grown.output, HasSubstr("holds the tasks 0-2, not 3-4"));
  const Finished chosen = collect_from("['low', 'middle', 'high', 'higher', 'highest']", "0-2");
  EXPECT_EQ(chosen.exit_code, 0) << chosen.output;
  EXPECT_THAT(chosen.output, HasSubstr("is kept"));
  run_.write("lessons.py", "raise RuntimeError('no licence is free')\n");
  const Finished broken = collect("null");
  EXPECT_EQ(broken.exit_code, 0) << "a complete file is of use without its environments: " << broken.output;
  EXPECT_THAT(broken.output,
              AllOf(HasSubstr("as no worker starts"), HasSubstr("no licence is free"), HasSubstr("is kept")));
}

}  // namespace
}  // namespace adtrain
