#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "data/TaskScaling.h"
#include "data/formats/HistorySource.h"
#include "support/Python.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kFile = "histories/history_lessons_PPO_alg-seed0.hdf5";
constexpr const char* kConfig = R"(
env: lessons
env_worker: lessons:make_names
env_python: )" ADTRAIN_PYTHON R"(
n_stream: 4
n_steps: 16
batch_size: 32
n_epochs: 4
total_source_timesteps: 2000
)";

/// Users' tasks, those of tests/environments/worker/lessons.py, by the program itself.
class CollectOwn : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_python_package("gymnasium")) GTEST_SKIP() << "no gymnasium in " << ADTRAIN_PYTHON;
    run_.write("own.yaml", kConfig);
    run_.write("lessons.py", read_file(ADTRAIN_SOURCE_DIR "/tests/environments/worker/lessons.py"));
  }
  Finished collect(const std::string& more = "") const { return run_.adtrain("collect own.yaml " + more); }

  SmallRun run_;
};

TEST_F(CollectOwn, LearnsTheTasksOfAModuleAndWritesWhatInspectReads) {
  const Finished collected = collect();
  ASSERT_EQ(collected.exit_code, 0) << collected.output;
  EXPECT_THAT(collected.output,
              AllOf(HasSubstr("3 of lessons:make_names"), HasSubstr("Discrete(3) → Discrete(3)"),
                    HasSubstr("PPO, 4 streams × 512 steps a task"),
                    HasSubstr("mean return at the end of learning"), Not(HasSubstr("oracle"))));
  const Finished kept = collect("--json 2> said");
  EXPECT_EQ(kept.exit_code, 0);
  EXPECT_EQ(kept.output, "") << "standard output is the answer's";
  EXPECT_THAT(run_.read("said"), HasSubstr("exists already and is kept"));
  const Finished inspected = run_.adtrain("inspect histories " + std::string(kFile) + " --json");
  ASSERT_EQ(inspected.exit_code, 0) << inspected.output;
  const nlohmann::json found = nlohmann::json::parse(inspected.output).at("data_sets").at(0);
  EXPECT_EQ(found.at("description"), "version 2, one group a task, stream first");
  EXPECT_EQ(found.at("groups").at(0).at("observation_space").at("start"), 5);
  EXPECT_EQ(found.at("read").at("each_task").at(1).at("name"), "middle");
  EXPECT_GT(found.at("read").at("return_of_last_tenth"), found.at("read").at("return_of_first_tenth"));
}

/// One configuration from one end to the other.
TEST_F(CollectOwn, WhatWasCollectedIsTrainedOnAndEvaluated) {
  run_.write("all.yaml", std::string(kConfig) + R"(
train_tasks: 0,2
run_name: own
tf_n_embd: 16
tf_n_layer: 2
tf_n_head: 2
tf_dropout: 0
tf_attn_dropout: 0
n_transit: 40
loss_positions: all
train_timesteps: 60
global_batch_size: 16
lr: 0.01
num_warmup_steps: 5
eval_episodes: 4
eval_repeats: 3
eval_windows: 32
env_random_episodes: 4
)");
  run_.write("scores.yaml", "middle: {expert_score: 5}\nhigh: {expert_score: 5}\n");
  ASSERT_EQ(run_.adtrain("collect all.yaml").exit_code, 0);
  const Finished trained = run_.mpirun(2, "train all.yaml");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;

  const auto summary_of = [&](const std::string& settings) {
    const Finished evaluated = run_.adtrain("evaluate runs/own --json " + settings + " 2>/dev/null");
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
    return nlohmann::json::parse(evaluated.output);
  };
  const auto whole = summary_of("--set eval_scores=scores.yaml");
  EXPECT_EQ(whole.at("task_names"), nlohmann::json({"middle"})) << "the one that training did not see";
  EXPECT_TRUE(whole.contains("random_floor"));
  EXPECT_FALSE(whole.contains("grid_size"));
  const double random = whole.at("random_floor"), mean = whole.at("last10_mean");
  EXPECT_NEAR(whole.at("normalized_score").at("last10_mean"), (mean - random) / (5 - random), 1e-6);
  EXPECT_TRUE(std::filesystem::exists(run_.run("own") / "evaluation/latest/normalized_score.png"));

  const auto rolling = summary_of("--set eval_context=rolling");
  EXPECT_EQ(rolling.at("eval_context"), "rolling");
  EXPECT_EQ(rolling.at("mean"), whole.at("mean")) << "the window is never full";
  const auto vintix = summary_of("--set eval_protocol=vintix --set eval_scores=scores.yaml");
  EXPECT_EQ(vintix.at("eval_context"), "rolling");
  EXPECT_EQ(vintix.at("eval_sampling"), "greedy");
  EXPECT_EQ(vintix.at("repeats"), 3);
  EXPECT_EQ(vintix.at("normalized_score").at("eval_scores"), "scores.yaml");
  // Without a file by what the histories say.
  const auto by_histories = summary_of("--set eval_protocol=vintix");
  const auto recorded = nlohmann::json::parse(run_.read("runs/own/tasks.json"));
  for (const auto& task : recorded.at("tasks")) {
    if (task.at("task") != "middle") continue;
    const double lowest = task.at("random_score"), highest = task.at("expert_score");
    EXPECT_NEAR(by_histories.at("normalized_score").at("last10_mean"),
                (by_histories.at("last10_mean").get<double>() - lowest) / (highest - lowest), 1e-6);
  }
  EXPECT_FALSE(by_histories.at("normalized_score").contains("eval_scores"));
  EXPECT_EQ(summary_of("--set eval_tasks=train").at("task_names"), nlohmann::json({"low", "high"}));
  // Where the source earned less than random actions, the scale would be the wrong way round.
  const std::string kept = run_.read("runs/own/tasks.json");
  std::vector<TaskScale> tasks = TaskScaling::from_json(kept, "tasks.json").tasks();
  for (TaskScale& task : tasks) {
    task.random_score = 1;
    task.expert_score = task.task == "low" ? 0.5 : 8;
  }
  run_.write("runs/own/tasks.json", TaskScaling(tasks).to_json());
  const Finished partly_placed = run_.adtrain("evaluate runs/own --set eval_tasks=train");
  EXPECT_EQ(partly_placed.exit_code, 0) << partly_placed.output;
  EXPECT_THAT(partly_placed.output,
              AllOf(HasSubstr("normalised scores leave 1 of 2 tasks out"),
                    HasSubstr("can be placed: 0; expected"), HasSubstr("normalised score of 1 tasks")));
  run_.write("runs/own/tasks.json", kept);

  std::filesystem::rename(run_.run("own"), run_.folder() / "moved");
  const Finished moved = run_.adtrain("evaluate moved --json --set eval_scores=scores.yaml 2>/dev/null");
  ASSERT_EQ(moved.exit_code, 0) << moved.output;
  EXPECT_EQ(nlohmann::json::parse(moved.output).at("mean"), whole.at("mean"));
  std::filesystem::rename(run_.folder() / "moved" / "tasks.json", run_.folder() / "tasks.json");
  const Finished partly = run_.adtrain("evaluate moved");
  EXPECT_EQ(partly.exit_code, 5) << partly.output;
  EXPECT_THAT(partly.output, HasSubstr("moved/tasks.json does not exist"));
  std::filesystem::rename(run_.folder() / "tasks.json", run_.folder() / "moved" / "tasks.json");

  const Finished missing = run_.adtrain("evaluate moved --set eval_scores=own.yaml");
  EXPECT_EQ(missing.exit_code, 4) << missing.output;
  const Finished other = run_.adtrain("evaluate moved --set env_worker=lessons:make_pairs");
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("other spaces than the checkpoint was trained for"));
}

TEST_F(CollectOwn, AScoreIsOfWholeEpisodesOrIsNotThere) {
  run_.write("endless.py",
             "import lessons\n\nTASKS = lessons.TASKS\n\n\nclass Endless(lessons.Names):\n"
             "    def step(self, action):\n        return self.observe(), 1.0, False, False, {}\n\n\n"
             "def make_names(task, seed):\n    return Endless(task)\n");
  const auto scores_of = [&](const std::string& more) {
    const Finished collected =
        collect("--overwrite --set tasks=1 --set env_worker=endless:make_names " + more);
    EXPECT_EQ(collected.exit_code, 0) << collected.output;
    return HistorySource::open(run_.folder() / kFile)->tasks().front().attributes;
  };
  EXPECT_FALSE(scores_of("").contains("expert-score")) << "512 steps without an end";
  EXPECT_EQ(scores_of("--set max_episode_steps=300").at("expert-score"), "300.0") << "and 212 more";
}

TEST_F(CollectOwn, StartsNoMoreProcessesThanStreams) {
  run_.write("counted.py", "from lessons import make_names, TASKS\n\nopen('started', 'a').write('one\\n')\n");
  const Finished collected =
      collect("--set tasks=1 --set env_workers=12 --set env_worker=counted:make_names");
  ASSERT_EQ(collected.exit_code, 0) << collected.output;
  EXPECT_EQ(std::ranges::count(run_.read("started"), '\n'), 1 + 4)
      << "one to see the spaces, and one for each of n_stream = 4";
}

TEST_F(CollectOwn, KeepsTheFileOrRefusesItsSettings) {
  ASSERT_EQ(collect("--set tasks=0,2").exit_code, 0);
  const std::string bytes = run_.read(kFile);
  EXPECT_THAT(collect("--set tasks=0,2").output, HasSubstr("exists already and is kept"));
  EXPECT_THAT(collect("--set tasks=0,2 --set history_compression=1").output, HasSubstr("is kept"))
      << "the values are the same";
  for (const char* all : {"--set tasks=0-2", ""}) {
    const Finished missing = collect(all);
    EXPECT_EQ(missing.exit_code, 4) << missing.output;
    EXPECT_THAT(missing.output, HasSubstr("holds the tasks 0,2, not 1"));
  }
  const Finished others = collect("--set n_epochs=3 --set env_worker=lessons:make_pairs");
  EXPECT_EQ(others.exit_code, 4) << others.output;
  EXPECT_THAT(others.output, AllOf(HasSubstr("n_epochs 4 (the configuration says 3)"),
                                   HasSubstr("env_worker lessons:make_names (the configuration says")));
  EXPECT_EQ(run_.read(kFile), bytes);
  ASSERT_EQ(collect("--overwrite --set tasks=0,2 --set n_epochs=3").exit_code, 0);
  EXPECT_NE(run_.read(kFile), bytes);
}

TEST_F(CollectOwn, AFaultKeepsFinishedTasksAndTheSameCommandContinues) {
  const std::string sound = run_.read("lessons.py");
  run_.write("lessons.py", sound + "\n\nmake_names = make_failing\n");
  const Finished failed = collect("--set n_process=1");
  EXPECT_EQ(failed.exit_code, 2) << failed.output;
  EXPECT_THAT(failed.output, AllOf(HasSubstr("task 2 (high)"), HasSubstr("ZeroDivisionError")));
  run_.write("lessons.py", sound);
  const Finished continued = collect();
  EXPECT_EQ(continued.exit_code, 0) << continued.output;
  EXPECT_THAT(continued.output, HasSubstr("continuing the collection that was stopped"));
  const std::string bytes = run_.read(kFile);
  const Finished whole = collect("--overwrite");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_EQ(run_.read(kFile), bytes);
  const auto mean_of = [](const Finished& finished) {
    return finished.output.substr(finished.output.rfind("mean return at the end of learning"));
  };
  EXPECT_EQ(mean_of(continued), mean_of(whole)) << "over all tasks, whichever call has learnt them";
}

TEST_F(CollectOwn, ASourceThatDivergesIsToBlameNotTheEnvironment) {
  const Finished diverged = collect("--set source_lr=1e30 --set env_worker=lessons:make_points");
  EXPECT_EQ(diverged.exit_code, 6) << diverged.output;
  EXPECT_THAT(diverged.output,
              AllOf(HasSubstr("lower source_lr, which is 1e+30"), Not(HasSubstr("wrong reward"))));
  EXPECT_FALSE(std::filesystem::exists(run_.folder() / kFile));
}

TEST_F(CollectOwn, BadInputIsRefusedByName) {
  run_.write("no_worker.yaml", "env: darkrom\n");
  const Finished unknown = run_.adtrain("collect no_worker.yaml");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output, AllOf(HasSubstr("env_worker"), HasSubstr("did you mean darkroom?")));
  const Finished gpu = collect("--set device=cuda");
  EXPECT_EQ(gpu.exit_code, 3) << gpu.output;
  EXPECT_THAT(gpu.output, HasSubstr("device"));
  const Finished tasks = collect("--set tasks=2-5");
  EXPECT_EQ(tasks.exit_code, 2);
  EXPECT_THAT(tasks.output,
              HasSubstr("found task 5; expected numbers of the TASKS of lessons:make_names, 0 to 2"));
  const Finished box = collect("--set env_worker=lessons:make_whole_box");
  EXPECT_EQ(box.exit_code, 2);
  EXPECT_THAT(box.output, HasSubstr("Box((1,), int32)"));
  for (const char* key : {"optimal_actions", "terminal_next_states", "write_compress_markers"}) {
    const Finished grid = collect(fmt::format("--set {}=true", key));
    EXPECT_EQ(grid.exit_code, 2);
    EXPECT_THAT(grid.output, AllOf(HasSubstr(key), HasSubstr("your own tasks")));
  }
  run_.write("grid.yaml", "env: darkroom\nsource_hidden_units: 32\n");
  EXPECT_THAT(run_.adtrain("collect grid.yaml").output,
              HasSubstr("source_hidden_units: found 32 with env darkroom"));
}

}  // namespace
}  // namespace adtrain
