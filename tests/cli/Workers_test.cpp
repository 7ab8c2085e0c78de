#include <memory>
#include <regex>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "support/Python.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// The module of docs/own-environments.md, with the room and the episodes of small.yaml.
std::string module_of_the_page() {
  const std::string page = read_file(ADTRAIN_SOURCE_DIR "/docs/own-environments.md");
  const std::string begin = "```python\n", published = "SIZE, HORIZON = 9, 20";
  const size_t first = page.find(begin) + begin.size();
  std::string module = page.substr(first, page.find("```", first) - first);
  return module.replace(module.find(published), published.size(), "SIZE, HORIZON = 5, 8");
}

/// Where an evaluation says that it has kept what was played.
std::filesystem::path kept_in(const Finished& finished) {
  static const std::regex kFolder(R"(kept: .* in (\S+-worker\S*-incomplete))");
  std::smatch found;
  if (!std::regex_search(finished.output, found, kFolder))
    throw std::runtime_error("nothing kept: " + finished.output);
  return found[1].str();
}
/// The summary there.
nlohmann::json kept_of(const SmallRun& run, const Finished& finished) {
  return nlohmann::json::parse(run.read(kept_in(finished) / "summary.json"));
}

/// A trained run, which all these tests evaluate.
class Workers : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    run_ = std::make_unique<SmallRun>();
    has_gymnasium_ = has_python_package("gymnasium");
    if (!has_gymnasium_) return;
    const Finished collected = run_->collect(), trained = run_->adtrain("small.yaml");
    ASSERT_EQ(trained.exit_code, 0) << collected.output << trained.output;
    run_->write("my_envs.py", module_of_the_page());
  }
  static void TearDownTestSuite() { run_.reset(); }
  void SetUp() override {
    if (!has_gymnasium_) GTEST_SKIP() << "no gymnasium in " << ADTRAIN_PYTHON;
  }

  static std::string command(const std::string& env_worker, const std::string& settings) {
    return "evaluate runs/small --json --set eval_repeats=2 " +
           (env_worker.empty() ? ""
                               : "--set env_python=" ADTRAIN_PYTHON " --set env_worker=" + env_worker + " ") +
           settings;
  }
  /// All returns of the newest evaluation, as they are stored.
  static std::string returns() {
    return run_->read("runs/small/evaluation/latest/reward_episode_repeats.npy");
  }
  static void expect_equal_returns(const Finished& finished, const std::string& expected,
                                   const std::string& what) {
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
    EXPECT_EQ(returns(), expected) << what;
  }

  static std::unique_ptr<SmallRun> run_;
  static bool has_gymnasium_;
};

std::unique_ptr<SmallRun> Workers::run_;
bool Workers::has_gymnasium_ = false;

/// Five held-out tasks and two repeats of each: ten trials.
TEST_F(Workers, DarkroomInPythonGivesTheBuiltInCurveToTheLastBit) {
  const Finished built_in = run_->adtrain(command("", "2>/dev/null"));
  ASSERT_EQ(built_in.exit_code, 0) << built_in.output;
  const std::string expected = returns();
  const Finished single = run_->adtrain(command("my_envs:make_env", "--set env_overlap=false 2>/dev/null"));
  expect_equal_returns(single, expected, "single environments");
  const auto summary = nlohmann::json::parse(single.output), same = nlohmann::json::parse(built_in.output);
  for (const char* figure : {"mean", "std", "last10_mean", "tasks"}) EXPECT_EQ(summary[figure], same[figure]);
  EXPECT_FALSE(summary.contains("oracle"));
  EXPECT_FALSE(summary.contains("horizon"));
  EXPECT_EQ(summary["env_worker"], "my_envs:make_env");
  expect_equal_returns(
      run_->adtrain(command("my_envs:make_vec_env", "--set env_overlap=false --set env_workers=2")), expected,
      "vectors in two processes");

  ASSERT_EQ(run_->adtrain(command("", "--set eval_batch=5")).exit_code, 0);
  const std::string of_halves = returns();
  expect_equal_returns(run_->adtrain(command("my_envs:make_vec_env", "")), of_halves, "two halves in turn");
  const std::string on_ranks = command("my_envs:make_env", "--set eval_batch=5 --set env_overlap=false");
  expect_equal_returns(run_->mpirun(2, on_ranks), of_halves, "two ranks of mpirun");
  expect_equal_returns(run_->torchrun(2, on_ranks), of_halves, "two ranks of torchrun");
}

constexpr const char* kOwnTasks = R"(
import os, signal
import gymnasium as gym
from my_envs import Darkroom

TASKS = [{"goal": 3, "length": 2}, {"goal": 12, "length": 7}, {"goal": 7, "length": 3}]


class Room(Darkroom):
    def __init__(self, task):
        super().__init__(task["goal"])
        self.length, self.episodes = task["length"], 0

    def reset(self, **options):
        self.episodes += 1
        return super().reset(**options)

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward / 4 - 1, self.steps == self.length, False, info


def make_env(task, seed):
    return Room(task)


class Killed(Room):
    def step(self, action):
        if self.episodes == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def make_killed(task, seed):
    return (Killed if task["length"] == 7 else Room)(task)


def make_wide(task, seed):
    room = Room(task)
    room.observation_space = gym.spaces.Box(0, 1, (7,))
    return room


def make_slow(task, seed):
    import time
    room = Room(task)
    inner = room.step
    def step(action):
        time.sleep(0.02)
        return inner(action)
    room.step = step
    return room
)";

TEST_F(Workers, TasksOfTheModuleEpisodesOfAnyLengthAndTheRandomReturn) {
  run_->write("own_tasks.py", kOwnTasks);
  const Finished all =
      run_->adtrain(command("own_tasks:make_env", "--set env_random_episodes=5 2>/dev/null"));
  ASSERT_EQ(all.exit_code, 0) << all.output;
  const auto own_folder = std::filesystem::canonical(run_->run() / "evaluation" / "latest");
  const auto summary = nlohmann::json::parse(all.output);
  EXPECT_EQ(summary["tasks"], (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(summary["task_names"][1], "{'goal': 12, 'length': 7}");
  EXPECT_GE(summary["random_floor"], -4.0) << "two, seven and three steps cost 1 each";
  EXPECT_LE(summary["random_floor"], -3.0) << "or 0.75, on the goal";
  EXPECT_FALSE(summary.contains("oracle"));
  for (const double mean : summary["mean"]) {
    EXPECT_GE(mean, -4);
    EXPECT_LE(mean, -3);
  }
  EXPECT_EQ(run_->adtrain("plot runs/small --out chart.svg").exit_code, 0);
  EXPECT_THAT(run_->read("chart.svg"), AllOf(HasSubstr("random"), Not(HasSubstr("oracle"))));
  EXPECT_EQ(run_->adtrain("plot runs/small --json").exit_code, 0);

  // A trial's returns are its own, whoever plays beside it.
  const std::string csv = run_->read("runs/small/evaluation/latest/reward_episode.csv");
  const Finished one = run_->adtrain(command("own_tasks:make_env", "--set eval_tasks=2"));
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const std::string alone = run_->read("runs/small/evaluation/latest/reward_episode.csv");
  EXPECT_THAT(csv, HasSubstr(alone.substr(alone.find('\n') + 1)));

  // How the environments are played is a part of what was evaluated.
  const Finished whole = run_->adtrain(command("own_tasks:make_env", "--set clip_actions=false 2>/dev/null"));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_EQ(nlohmann::json::parse(whole.output)["clip_actions"], false);
  EXPECT_EQ(nlohmann::json::parse(read_file(own_folder / "summary.json")), summary);

  const Finished absent = run_->adtrain(command("own_tasks:make_env", "--set eval_tasks=1,3"));
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.output, AllOf(HasSubstr("found task 3"), HasSubstr("TASKS"), HasSubstr("0 to 2")));
  const Finished none = run_->adtrain(command("own_tasks:make_env", "--set eval_tasks=train"));
  EXPECT_EQ(none.exit_code, 2);
}

TEST_F(Workers, WhatWasPlayedBeforeAWorkerDiedIsKept) {
  run_->write("own_tasks.py", kOwnTasks);
  const Finished alone = run_->adtrain(command("own_tasks:make_killed", ""));
  EXPECT_EQ(alone.exit_code, 3);
  EXPECT_THAT(alone.output, AllOf(HasSubstr("killed by signal 9"), HasSubstr("It printed nothing")));
  EXPECT_THAT(alone.output, HasSubstr("2 of 5 episodes of 3 of 3 tasks"));
  const auto all = kept_of(*run_, alone);
  EXPECT_EQ(all["tasks"].size(), 3U);
  EXPECT_EQ(all["episodes"], 2);
  EXPECT_EQ(all["task_names"].size(), 3U);

  // Of the three groups of two ranks, the second rank's dies: that of task 1.
  const Finished ranks = run_->mpirun(2, command("own_tasks:make_killed", "--set eval_batch=2"));
  EXPECT_NE(ranks.exit_code, 0);
  EXPECT_THAT(ranks.output, HasSubstr("killed by signal 9"));
  const auto first = kept_of(*run_, ranks);
  EXPECT_EQ(first["tasks"], (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(first["episodes"], 2);

  // With a module that is mended the same evaluation is written whole, in place of what was kept.
  const std::string fault = "self.episodes == 3:";
  std::string mended = kOwnTasks;
  run_->write("own_tasks.py", mended.replace(mended.find(fault), fault.size(), "self.episodes == 3000:"));
  const Finished whole = run_->adtrain(command("own_tasks:make_killed", ""));
  EXPECT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_FALSE(std::filesystem::exists(run_->folder() / kept_in(alone)));
  EXPECT_FALSE(std::filesystem::exists(run_->folder() / kept_in(ranks)));
}

TEST_F(Workers, WhatIsWrongIsSaidBeforeAnythingIsPlayed) {
  run_->write("own_tasks.py", kOwnTasks);
  const Finished spaces = run_->adtrain(command("own_tasks:make_wide", ""));
  EXPECT_EQ(spaces.exit_code, 2);
  EXPECT_THAT(spaces.output,
              AllOf(HasSubstr("Box((7,), float32)"), HasSubstr("MultiDiscrete((2,), 5 values)")));
  const Finished spelling = run_->adtrain(command("my_envs.make_env", ""));
  EXPECT_EQ(spelling.exit_code, 2);
  EXPECT_THAT(spelling.output, HasSubstr("such as my_envs:make_env"));
  const Finished tasks = run_->adtrain(command("my_envs:make_env", "--set eval_tasks=25"));
  EXPECT_EQ(tasks.exit_code, 2);
  EXPECT_THAT(tasks.output, AllOf(HasSubstr("found task 25"), HasSubstr("darkroom"), HasSubstr("0 to 24")));
  const auto scored_by = [&](const std::string& scores) {
    run_->write("scores.yaml", scores);
    const Finished refused = run_->adtrain(command("own_tasks:make_env", "--set eval_scores=scores.yaml"));
    EXPECT_EQ(refused.exit_code, 4);
    return refused.output;
  };
  EXPECT_THAT(scored_by("\"{'goal': 3, 'length': 2}\": {random_score: -3, expert_scor: 1}\n"),
              HasSubstr("did you mean expert_score"));
  EXPECT_THAT(scored_by("\"{'goal': 3, 'lenght': 2}\": {random_score: -3, expert_score: 1}\n"),
              HasSubstr("did you mean '{'goal': 3, 'length': 2}' by '{'goal': 3, 'lenght': 2}'?"));
}

TEST_F(Workers, ASignalStopsTheEvaluationAndItsWorkers) {
  run_->write("own_tasks.py", kOwnTasks);
  const Finished stopped = run_->shell(
      kAwait + ("$adtrain " + command("own_tasks:make_slow", "--set eval_episodes=100000") +
                " > log 2>&1 & rank=$!; worker() { pgrep -P $rank -f environment_worker; }; "
                "await worker; child=$(worker); sleep 1; kill -TERM $rank; wait $rank; status=$?; cat log; "
                "kill -0 $child 2> /dev/null && echo the worker lives; exit $status"));
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_THAT(stopped.output, Not(HasSubstr("the worker lives")));
}

}  // namespace
}  // namespace adtrain
