#include <map>
#include <memory>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "OwnHistories.h"
#include "SmallRun.h"
#include "support/Python.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kConfiguration = R"(env: rooms
histories: xland.hdf5
window_stride: 12
window_margin: 1
transformer_block: xland
tf_n_embd: 16
tf_n_layer: 2
tf_n_head: 2
n_transit: 24
tf_dropout: 0
tf_attn_dropout: 0
loss_positions: all
lr: 1.0e-2
train_timesteps: 40
global_batch_size: 16
test_batch_size: 16
num_workers: 2
cpu_threads: 1
summary_interval: 1
eval_interval: 20
ckpt_interval: 20
device: cpu
)";

/// A list as Vintix has them: of the last task there are no histories.
constexpr const char* kList = R"(ant:
  path: mujoco/ant
  group: mujoco
  type: default
  reward_scale: 0.5
  episode_sparsity: 2
  random_score: -9
  expert_score: -1
reach: {path: metaworld/reach, group: metaworld, type: default, reward_scale: 1, episode_sparsity: 1}
walker: {path: mujoco/walker, group: mujoco, type: test, reward_scale: 0.3, episode_sparsity: 1}
elsewhere:
  path: mujoco/elsewhere
  group: mujoco
  type: test
  reward_scale: 0.25
  random_score: -8
  expert_score: 1
)";

/// Runs on histories that are in neither case those of a grid family.
class OwnTasks : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    run_ = std::make_unique<SmallRun>();
    const Finished written = write_own_histories(*run_);
    ASSERT_EQ(written.exit_code, 0) << written.output;
    run_->write("xland.yaml", kConfiguration);
    std::string vintix = kConfiguration;
    vintix.replace(vintix.find("xland.hdf5"), 10, "vintix");
    vintix.replace(vintix.find("block: xland"), 12, "block: vintix");
    run_->write("vintix.yaml", vintix +
                                   "normalize_observations: true\nepisode_stride: 2\nreward_scale: "
                                   "0.1\ntask_weights: tasks\ntrain_env_ratio: 0.7\n");
  }
  static void TearDownTestSuite() { run_.reset(); }

  static std::vector<double> losses(const std::string& name) {
    std::vector<double> values;
    for (const auto& record : run_->metrics(name, "loss")) values.push_back(record["loss"].get<double>());
    return values;
  }
  /// Of ten steps.
  static double mean(const std::vector<double>& values, size_t first) {
    return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(first),
                           values.begin() + static_cast<std::ptrdiff_t>(first + 10), 0.0) /
           10;
  }
  static std::string weights(const std::string& name) {
    return run_->read("runs/" + name + "/checkpoints/step-40/model.safetensors");
  }
  static void expect_error(const std::string& arguments, int code,
                           const testing::Matcher<const std::string&>& says) {
    const Finished finished = run_->adtrain(arguments);
    EXPECT_EQ(finished.exit_code, code) << finished.output;
    EXPECT_THAT(finished.output, says);
  }

  static std::unique_ptr<SmallRun> run_;
};

std::unique_ptr<SmallRun> OwnTasks::run_;

TEST_F(OwnTasks, TheLossFallsWhateverTheRanksAndAResumedRunIsTheUninterruptedOne) {
  for (const std::string kind : {"xland", "vintix"}) {
    const std::string config = kind + ".yaml --set run_name=" + kind;
    const auto start = [&](const std::string& arguments) {
      return kind == "xland" ? run_->mpirun(2, config + arguments) : run_->adtrain(config + arguments);
    };
    const Finished whole = start("-whole");
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    EXPECT_THAT(whole.output, AllOf(HasSubstr("held in memory"),
                                    HasSubstr(kind == "xland" ? "one copy for the 2 ranks" : "in memory; ")));
    const std::vector<double> all = losses(kind + "-whole");
    ASSERT_EQ(all.size(), 40U);
    EXPECT_LT(mean(all, 30), 0.95 * mean(all, 0)) << kind;
    EXPECT_EQ(run_->metrics(kind + "-whole", "test_loss").size(), 2U);

    ASSERT_EQ(start("-parts --stop-after 20").exit_code, 75);
    // Where the histories lie changes nothing.
    const Finished resumed = start("-parts --resume --set num_workers=0 --set history_cache=0");
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("histories are read in place: in memory they would take"));
    EXPECT_EQ(losses(kind + "-parts"), all) << kind;
    EXPECT_TRUE(weights(kind + "-parts") == weights(kind + "-whole")) << kind;
    EXPECT_EQ(run_->read("runs/" + kind + "-parts/tasks.json"),
              run_->read("runs/" + kind + "-whole/tasks.json"));
  }
  ASSERT_EQ(run_->adtrain("xland.yaml --set run_name=one --set num_workers=1 --stop-after 10").exit_code, 75);
  const std::vector<double> one = losses("one"), two = losses("xland-whole");
  ASSERT_EQ(one.size(), 10U);
  for (size_t step = 0; step < one.size(); ++step) EXPECT_NEAR(one[step], two[step], 1e-4) << step;
  const json tasks = json::parse(run_->read("runs/vintix-whole/tasks.json")).at("tasks");
  ASSERT_EQ(tasks.size(), 3U);
  for (const json& task : tasks) {
    EXPECT_EQ(task["trained"], task != tasks[2]);
    EXPECT_EQ(task["reward_scale"], 0.1);
    if (!task["trained"].get<bool>()) continue;
    EXPECT_EQ(task["steps"], 900);
    EXPECT_NEAR(task["mean"][3].get<double>(), 5.0 * task["number"].get<double>(), 0.5);
    EXPECT_NEAR(task["deviation"][0].get<double>(), 3, 0.3);
  }
  EXPECT_EQ(tasks[2]["steps"], 1800) << "the held-out one is scaled as those that training saw, together";
  EXPECT_NEAR(tasks[2]["mean"][3].get<double>(),
              (tasks[0]["mean"][3].get<double>() + tasks[1]["mean"][3].get<double>()) / 2, 1e-9);
}

TEST_F(OwnTasks, AnotherSplitKeepsEachTasksOwnScale) {
  ASSERT_EQ(run_->adtrain("vintix.yaml --set run_name=split --set train_tasks=0,1 --stop-after 5").exit_code,
            75);
  const Finished changed = run_->adtrain(
      "vintix.yaml --set run_name=split --set train_tasks=1,2 --resume --allow-changes train_tasks "
      "--stop-after 10");
  ASSERT_EQ(changed.exit_code, 75) << changed.output;
  const json tasks = json::parse(run_->read("runs/split/tasks.json")).at("tasks");
  ASSERT_EQ(tasks.size(), 3U);
  for (const json& task : tasks) {
    const int64_t number = task["number"];
    EXPECT_EQ(task["trained"], number != 0);
    const double middle =
        number == 0 ? 1.5 : static_cast<double>(number);  // held out: as tasks 1 and 2 together
    EXPECT_NEAR(task["mean"][3].get<double>(), 5.0 * middle, 0.5) << "task " << number;
  }
}

TEST_F(OwnTasks, ARunKnowsItsSpacesAndRefusesOtherHistories) {
  const std::string config = "xland.yaml --set train_timesteps=4 --set ckpt_interval=2 --set run_name=kept";
  ASSERT_EQ(run_->adtrain(config + " --stop-after 2").exit_code, 75);
  const std::string saved = run_->read("runs/kept/config.yaml");
  EXPECT_THAT(saved, AllOf(HasSubstr("observation_space: \"{\\\"type\\\": \\\"MultiDiscrete\\\""),
                           HasSubstr("observation_packing: \"13,12\""), HasSubstr("\\\"n\\\": 6"),
                           HasSubstr("train_source_timesteps: all")));
  // The saved configuration means the same, and so do the histories under another name.
  const Finished moved = run_->shell(
      "cp xland.hdf5 moved.hdf5 && $adtrain runs/kept/config.yaml --resume --stop-after 3 --set "
      "histories=moved.hdf5");
  EXPECT_EQ(moved.exit_code, 75) << moved.output;
  const Finished other =
      run_->shell(ADTRAIN_PYTHON
                  " -c \"import h5py; h5py.File('moved.hdf5', 'r+')['3/rewards'][0, -1] = 5\" && $adtrain " +
                  config + " --resume --set histories=moved.hdf5");
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_THAT(other.output, AllOf(HasSubstr("was trained on other histories"), HasSubstr("moved.hdf5"),
                                  HasSubstr("--allow-changes histories")));
}

TEST_F(OwnTasks, ValidateSaysWhatThereIs) {
  const Finished text = run_->adtrain("validate xland.yaml");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_THAT(
      text.output,
      AllOf(HasSubstr(
                "# observations: MultiDiscrete((5, 5), 156 values), of 13 × 12 each; actions: Discrete(6)"),
            HasSubstr("# tasks: 4 trained on, 1 held out"), HasSubstr("# windows: 368 of 16 histories"),
            HasSubstr("with histories from xland.hdf5"), Not(HasSubstr("no learning to imitate"))));
  const Finished reversed = run_->shell(
      ADTRAIN_PYTHON
      " -c \"import h5py, shutil; shutil.copy('xland.hdf5', 'reversed.hdf5'); f = "
      "h5py.File('reversed.hdf5', 'r+'); f['1/rewards'][...] = f['1/rewards'][()][:, ::-1]\" && "
      "$adtrain validate xland.yaml --json --set histories=reversed.hdf5 --set train_tasks=1,2 "
      "--set device=auto --set mixed_precision=bf16 --set tf_n_embd=64 --set eval_context=rolling");
  EXPECT_EQ(reversed.exit_code, 0);
  const json report = json::parse(reversed.output);
  EXPECT_EQ(report["own_tasks"]["windows"], 184);
  EXPECT_THAT(report["notices"].dump(),
              HasSubstr("no learning to imitate: XLand-MiniGrid-R1-9x9 ruleset 101;"));
  EXPECT_THAT(report["kernels"].dump(),
              HasSubstr("over kept keys and values, attention by one kernel of ours, in a CUDA graph"));
}

TEST_F(OwnTasks, SeveralGroupsOfSpacesAreTrainedOnTogether) {
  const std::string config =
      "vintix.yaml --set histories=domains --set train_tasks=0-2 --set run_name=groups";
  const Finished whole = run_->mpirun(2, config);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("of 3 tasks in 2 groups of equal spaces"));
  const std::vector<double> all = losses("groups");
  ASSERT_EQ(all.size(), 40U);
  EXPECT_LT(mean(all, 30), 0.95 * mean(all, 0));
  EXPECT_EQ(run_->metrics("groups", "test_loss").size(), 2U);

  ASSERT_EQ(run_->mpirun(2, config + "-parts --stop-after 20").exit_code, 75);
  const Finished resumed = run_->mpirun(2, config + "-parts --resume --set num_workers=0");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(losses("groups-parts"), all);
  EXPECT_TRUE(weights("groups-parts") == weights("groups"));
  ASSERT_EQ(run_->adtrain(config + "-one --stop-after 10").exit_code, 75);
  const std::vector<double> one = losses("groups-one");
  for (size_t step = 0; step < one.size(); ++step) EXPECT_NEAR(one[step], all[step], 1e-4) << step;

  const json tasks = json::parse(run_->read("runs/groups/tasks.json")).at("tasks");
  ASSERT_EQ(tasks.size(), 4U);
  for (const json& task : tasks) {
    EXPECT_EQ(task["group"], task["number"] == 0 ? "metaworld" : "mujoco");
    EXPECT_EQ(task["mean"].size(), task["number"] == 0 ? 6U : 4U);
  }
  EXPECT_THAT(run_->read("runs/groups/config.yaml"),
              AllOf(HasSubstr("observation_space: null"), HasSubstr("space_groups: \"[{")));
  expect_error(config + " --resume --set history_group=mujoco", 2,
               AllOf(HasSubstr("space_groups"), HasSubstr("history_group")));
}

TEST_F(OwnTasks, GroupsOfSpacesAreChosenByName) {
  const std::string config =
      "vintix.yaml --set train_timesteps=2 --set histories=domains --set run_name=chosen";
  expect_error(
      config + " --set history_group=walkers", 2,
      AllOf(HasSubstr("no task that is chosen"),
            HasSubstr("metaworld: observations Box((6,), float32), actions Box((2,), float32), tasks 0"),
            HasSubstr("mujoco: observations Box((4,), float32), actions Box((2,), float32), tasks 1-3")));
  EXPECT_EQ(run_->adtrain(config + " --set history_group=mujoco").exit_code, 0);
  EXPECT_THAT(run_->read("runs/chosen/config.yaml"), HasSubstr("space_groups: null"));
  EXPECT_EQ(run_->adtrain(config + " --overwrite --set tasks=1,3").exit_code, 0);
  expect_error(config + " --overwrite --set cuda_graph=on", 2,
               HasSubstr("cuda_graph: found on with 2 groups"));
  const Finished validated = run_->adtrain("validate vintix.yaml --set histories=domains");
  EXPECT_THAT(validated.output, AllOf(HasSubstr("# group metaworld: observations: Box((6,)"),
                                      HasSubstr("# group mujoco: observations: Box((4,)")));
}

TEST_F(OwnTasks, AnEvaluationIsOfTheGroupWhoseSpacesTheEnvironmentsHave) {
  if (!has_python_package("gymnasium")) GTEST_SKIP() << "no gymnasium in " << ADTRAIN_PYTHON;
  run_->write("walks.py", R"(
import gymnasium as gym
import numpy as np


class Walk(gym.Env):
    def __init__(self, numbers):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (numbers,), np.float32)
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(7)  # the same walk in each episode
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), float(-abs(action).sum()), False, self.steps == 5, {}


TASKS = ["ant", "elsewhere"]


def make_four(task, seed):
    return Walk(4)


def make_six(task, seed):
    return Walk(6)


def make_five(task, seed):
    return Walk(5)
)");
  run_->write("list.yaml", kList);
  const Finished trained = run_->adtrain(
      "vintix.yaml --set histories=list.yaml --set traj_dir=domains --set train_timesteps=2 --set "
      "run_name=played");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("1 held-out task has no histories here"));
  const json recorded = json::parse(run_->read("runs/played/tasks.json"));
  for (const json& task : recorded.at("tasks")) {
    const std::string name = task["task"];
    EXPECT_EQ(task["trained"], name == "ant" || name == "reach") << name;
    EXPECT_EQ(task["group"], name == "reach" ? "metaworld" : "mujoco") << name;
    const std::map<std::string, double> scales = {
        {"ant", 0.05}, {"reach", 0.1}, {"walker", 0.03}, {"elsewhere", 0.025}};
    EXPECT_NEAR(task["reward_scale"], scales.at(name), 1e-12) << name;
  }
  const std::string command =
      "evaluate runs/played --set eval_episodes=2 --set eval_repeats=1 --set env_python=" ADTRAIN_PYTHON
      " --set eval_tasks=all --set env_worker=walks:make_";
  const Finished four = run_->adtrain(command + "four");
  EXPECT_EQ(four.exit_code, 0) << four.output;
  EXPECT_THAT(four.output, HasSubstr("group mujoco, one of 2"));
  // What the list says of both tasks' scores, also of that without histories.
  const json summary = json::parse(run_->read("runs/played/evaluation/latest/summary.json"));
  EXPECT_EQ(summary["normalized_score"]["tasks"], 2) << summary;
  const Finished six = run_->adtrain(command + "six --set eval_context=rolling");
  EXPECT_EQ(six.exit_code, 0) << six.output;
  EXPECT_THAT(six.output, HasSubstr("group metaworld, one of 2"));
  const auto returns = [&] { return run_->read("runs/played/evaluation/latest/reward_episode.npy"); };
  const std::string of_whole = returns();
  EXPECT_EQ(run_->adtrain(command + "six --set eval_context=rolling --set device_map='{\"\": 0, head: 1}'")
                .exit_code,
            0);
  EXPECT_TRUE(returns() == of_whole);
  expect_error(command + "five", 2,
               AllOf(HasSubstr("none of the groups"), HasSubstr("metaworld: observations Box((6,)"),
                     HasSubstr("mujoco: observations Box((4,)")));
  expect_error(command + "six --set eval_protocol=vintix", 2,
               HasSubstr("found null with eval_protocol vintix"));
  expect_error(command + "four --set env_group=metaworld", 2, HasSubstr("with env_group metaworld"));
}

TEST_F(OwnTasks, SeveralPathsAreTrainedOnTogetherAndResumed) {
  const std::string config =
      "vintix.yaml --set train_tasks=0,2,3 --set train_timesteps=4 --set ckpt_interval=2 --set "
      "run_name=paths ";
  const std::string paths = "--set 'histories=domains/metaworld/reach,vintix/mujoco/*' ";
  ASSERT_EQ(run_->adtrain(config + paths + "--stop-after 2").exit_code, 75);
  const Finished resumed = run_->adtrain(
      "runs/paths/config.yaml --resume --stop-after 3 --set "
      "'histories=[domains/metaworld/reach, vintix/mujoco/ant, vintix/mujoco/hopper, vintix/mujoco/walker]'");
  EXPECT_EQ(resumed.exit_code, 75) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("of 3 tasks in 2 groups of equal spaces"));
  expect_error(
      config +
          "--resume --set "
          "'histories=domains/metaworld/reach,vintix/mujoco/walker,vintix/mujoco/ant,vintix/mujoco/hopper'",
      2, HasSubstr("was trained on other histories"));
  const json tasks = json::parse(run_->read("runs/paths/tasks.json")).at("tasks");
  for (const json& task : tasks) {
    const std::vector<std::string> names = {"reach", "ant", "hopper", "walker"};
    EXPECT_EQ(task["task"], names.at(task["number"]));
    EXPECT_EQ(task["trained"], task["number"] != 1);
  }
  EXPECT_THAT(run_->read("runs/paths/config.yaml"), HasSubstr("domains/metaworld/reach,vintix/mujoco/"));
  const Finished validated = run_->adtrain("validate " + config + "--json " + paths);
  const json report = json::parse(validated.output);
  EXPECT_EQ(report["own_tasks"]["trained"], 3);
  EXPECT_EQ(report["own_tasks"]["groups"].size(), 2U);
}

TEST_F(OwnTasks, BadInputIsNamed) {
  const std::string config = "xland.yaml --set run_name=bad ";
  expect_error(config + "--set histories=xlond.hdf5", 4,
               AllOf(HasSubstr("command line: histories: xlond.hdf5 does not exist"),
                     HasSubstr("did you mean xland.hdf5?")));
  expect_error(config + "--set tasks=3-7", 2,
               HasSubstr("tasks: found 5-7, and xland.hdf5 has the tasks 0-4"));
  expect_error(config + "--set history_format=vintix", 4,
               HasSubstr("expected histories of the format vintix"));
  expect_error(config + "--set n_transit=299", 4,
               AllOf(HasSubstr("ruleset 10"), HasSubstr("no window: 300 steps"), HasSubstr("expected 301")));
  expect_error(config + "--set normalize_observations=true", 2, HasSubstr("other spaces than a Box"));
  expect_error(
      config + "--set 'action_space={type: Discrete, n: 5}'", 2,
      AllOf(HasSubstr("action_space: found {"), HasSubstr("\"n\": 5"), HasSubstr("has Discrete(6)")));
  expect_error(config + "--set observation_encoder=linear", 2, HasSubstr("observation_encoder"));
  const Finished nan =
      run_->shell(ADTRAIN_PYTHON
                  " -c \"import h5py, shutil; shutil.copy('xland.hdf5', 'nan.hdf5'); f = "
                  "h5py.File('nan.hdf5', 'r+'); f['2/rewards'][1, 100] = float('nan')\" && "
                  "$adtrain xland.yaml --set run_name=bad --set histories=nan.hdf5 --set train_tasks=2");
  EXPECT_EQ(nan.exit_code, 4) << nan.output;
  EXPECT_THAT(nan.output, HasSubstr("nan.hdf5: XLand-MiniGrid-R1-9x9 ruleset 102, history 1, step 100: found "
                                    "nan among the rewards"));
}

}  // namespace
}  // namespace adtrain
