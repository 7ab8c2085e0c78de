#include "evaluation/EvaluationFolder.h"

#include <algorithm>
#include <fstream>
#include <set>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/File.h"
#include "evaluation/EvaluationSummary.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

InContextReturns some_returns(int64_t repeats) {
  const std::vector<int64_t> tasks = {38, 51, 62};
  return {tasks, at::arange(std::ssize(tasks) * repeats * 12, at::kFloat)
                     .view({std::ssize(tasks), repeats, 12})
                     .remainder(7)};
}

void write(const std::filesystem::path& folder, const InContextReturns& measured) {
  const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
  EvaluationOptions options;
  options.eval_seed = 5;
  write_evaluation(folder, measured, LearningCurve::of(measured, family), {"darkroom", 3, 4000}, options);
}

TEST(EvaluationFolder, HoldsEveryFileAndNoOther) {
  for (const int64_t repeats : {1, 2}) {
    const TemporaryFolder folder;
    write(folder.path() / "evaluation", some_returns(repeats));
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "evaluation")) {
      names.push_back(entry.path().filename());
    }
    std::vector<std::string> expected = {"reward_episode.npy", "reward_episode.csv", "summary.json",
                                         "learning_curve.svg", "learning_curve.png"};
    if (repeats > 1) expected.emplace_back("reward_episode_repeats.npy");
    EXPECT_THAT(names, testing::UnorderedElementsAreArray(expected));
  }
}

/// Where the evaluation of some tasks at some step goes; its results are left there.
std::string place_of(const std::filesystem::path& parent, int64_t step, const EvaluationOptions& options,
                     const EvaluationOptions& usual = {}) {
  const EvaluationOrigin origin = {"darkroom", 3, step, 9, 20};
  const auto identity = evaluation_identity({1, 2}, origin, options);
  const std::filesystem::path folder = evaluation_folder(parent, identity, options, usual);
  write_file_atomically(folder / "summary.json", identity.dump());
  EXPECT_EQ(folder.parent_path(), parent);
  return folder.filename();
}

TEST(EvaluationFolder, ThoseThatKeepKeysInOtherTypesAreOthers) {
  const TemporaryFolder run;
  EvaluationOptions options;
  const auto place_in = [&](at::ScalarType type) {
    EvaluationOrigin origin = {"swamp", 3, 100};
    origin.type = type;
    const auto identity = evaluation_identity({1, 2}, origin, options);
    EXPECT_EQ(identity.contains("precision"), options.eval_context == EvaluationContext::kRolling);
    const std::filesystem::path folder = evaluation_folder(run.path(), identity, options, options);
    write_file_atomically(folder / "summary.json", identity.dump());
    return folder.filename().string();
  };
  EXPECT_EQ(place_in(at::kFloat), "test-step-100");
  options.eval_context = EvaluationContext::kRolling;
  const std::string first = place_in(at::kBFloat16), second = place_in(at::kFloat);
  EXPECT_NE(first, second);
  EXPECT_EQ(place_in(at::kBFloat16), first);
  EXPECT_EQ(place_in(at::kFloat), second);
}

TEST(EvaluationFolder, EachEvaluationHasItsOwnAndFindsItAgain) {
  const TemporaryFolder run;
  EvaluationOptions options;
  EXPECT_EQ(place_of(run.path(), 100, options), "test-step-100");
  EXPECT_EQ(place_of(run.path(), 200, options), "test-step-200");
  options.eval_tasks = "all";
  EXPECT_EQ(place_of(run.path(), 200, options), "all-step-200");
  options.eval_seed = 2;
  EXPECT_EQ(place_of(run.path(), 200, options), "all-step-200-seed-2");
  options.eval_sampling = Sampling::kGreedy;
  options.eval_episodes = 30;
  EXPECT_EQ(place_of(run.path(), 200, options), "all-step-200-1x30-greedy-seed-2");
  EXPECT_EQ(place_of(run.path(), 300, options, options), "all-step-300") << "it is the run's own way";
  options.eval_task_limit = 9;
  EXPECT_EQ(place_of(run.path(), 200, options), "all-step-200-1x30-2-tasks-greedy-seed-2")
      << "there are but two";
  EXPECT_EQ(place_of(run.path(), 100, EvaluationOptions{}), "test-step-100") << "its own, once more";
}

TEST(EvaluationFolder, ATakenNameGetsTheSizeAndThenANumber) {
  const TemporaryFolder run;
  EvaluationOptions options;
  EXPECT_EQ(place_of(run.path(), 100, options), "test-step-100");
  options.eval_terminal_observation = true;
  EXPECT_EQ(place_of(run.path(), 100, options), "test-step-100-1x50");
  options.eval_batch = 1;
  EXPECT_EQ(place_of(run.path(), 100, options), "test-step-100-1x50") << "groups change nothing";
  const EvaluationOrigin other = {"darkroom", /*env_split_seed=*/4, 100, 9, 20};
  EXPECT_EQ(
      evaluation_folder(run.path(), evaluation_identity({3, 4}, other, options), options, {}).filename(),
      "test-step-100-1x50-2");
}

/// Each of these has a folder of its own and finds it again, whichever of them was evaluated first.
void expect_own_folders(std::vector<nlohmann::ordered_json> identities) {
  for (const bool reversed : {false, true}) {
    const TemporaryFolder run;
    if (reversed) std::ranges::reverse(identities);
    const auto place_all = [&] {
      std::vector<std::string> names;
      for (const auto& identity : identities) {
        const std::filesystem::path folder = evaluation_folder(run.path(), identity, {}, {});
        write_file_atomically(folder / "summary.json", identity.dump());
        names.push_back(folder.filename());
      }
      return names;
    };
    const std::vector<std::string> names = place_all();
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), identities.size())
        << testing::PrintToString(names);
    EXPECT_EQ(place_all(), names);
  }
}

TEST(EvaluationFolder, KeysThatOnlyOneOfTwoHasTellThemApart) {
  std::vector<nlohmann::ordered_json> identities;
  const auto add = [&](const EvaluationOrigin& origin, const EvaluationOptions& options = {}) {
    identities.push_back(evaluation_identity({1, 2}, origin, options));
  };
  const EvaluationOrigin plain = {"darkroom", 3, 100, 9, 20};
  add(plain);
  EvaluationOrigin origin = plain;
  origin.type = at::kBFloat16;
  add(origin);
  origin = plain;
  origin.quantisation = {{"quantisation", "nf4"}};
  add(origin);
  origin.quantisation.emplace_back("llm_int8_skip_modules", "transformer.blocks.0");
  add(origin);
  origin.quantisation.back() = {"bnb_4bit_compute_dtype", "bf16"};
  add(origin);
  for (const char* key : {"n_transit", "compress_interval", "reward_scale"}) {
    origin = plain;
    for (const int64_t value : {20, 40}) {
      origin.shown_otherwise[key] = value;
      add(origin);
    }
  }
  EvaluationOptions options;
  options.eval_temperature = 0.7;
  add(plain, options);
  options = {};
  options.eval_forget_unrewarded = 1;
  add(plain, options);
  options = {};
  options.planning_horizon = 9;
  add(plain, options);
  options = {};
  options.eval_context = EvaluationContext::kRolling;
  add(plain, options);

  WorkerOptions worker;
  worker.env_worker = "my_envs:make_env";
  const auto add_in_worker = [&] {
    EvaluationOrigin played = plain;
    played.worker = EvaluationOrigin::Worker::of(worker);
    add(played);
  };
  add_in_worker();
  worker.clip_actions = false;
  add_in_worker();
  worker.env_group = "ants";
  add_in_worker();
  worker.clip_actions = true;
  add_in_worker();
  expect_own_folders(identities);
}

TEST(EvaluationFolder, WhatWasPlayedOfAnotherEvaluationIsKept) {
  const TemporaryFolder run;
  WorkerOptions worker;
  worker.env_worker = "my_envs:make_env";
  EvaluationOrigin origin = {"darkroom", 3, 100, 9, 20};
  origin.worker = EvaluationOrigin::Worker::of(worker);
  const EvaluationOptions asked;
  const auto keep = [&](const std::vector<int64_t>& played_tasks, int64_t episodes) {
    const auto folder =
        incomplete_evaluation_folder(run.path(), evaluation_identity({1, 2}, origin, asked), asked, {});
    EvaluationOptions played = asked;
    played.eval_episodes = episodes;
    write_file_atomically(folder / "summary.json", evaluation_identity(played_tasks, origin, played).dump());
    return folder.filename().string();
  };
  EXPECT_EQ(keep({1, 2}, 3), "test-step-100-worker-incomplete");
  EXPECT_EQ(keep({1}, 4), "test-step-100-worker-incomplete") << "the same evaluation once more";
  origin.worker->env_worker = "other_envs:make_env";
  EXPECT_EQ(keep({1, 2}, 3), "test-step-100-1x50-worker-incomplete");
  origin.worker->clip_actions = false;
  EXPECT_EQ(keep({1, 2}, 3), "test-step-100-1x50-worker-2-incomplete");
}

TEST(EvaluationFolder, WhatWasPlayedBeforeIsRemovedOnceTheSameEvaluationIsWhole) {
  const TemporaryFolder run;
  WorkerOptions worker;
  worker.env_worker = "my_envs:make_env";
  EvaluationOrigin origin = {"darkroom", 3, 4000, 9, 20};
  origin.worker = EvaluationOrigin::Worker::of(worker);
  const InContextReturns played = some_returns(2);  // 12 episodes of three tasks
  EvaluationOptions asked;
  asked.eval_repeats = 2;
  const auto identity_of = [&](const std::vector<int64_t>& tasks) {
    return evaluation_identity(tasks, origin, asked);
  };
  const auto kept = [&] {
    return incomplete_evaluation_folder(run.path(), identity_of(played.tasks), asked, asked);
  };
  const auto keep = [&] {
    LearningCurve curve = LearningCurve::without_bounds(played);
    curve.scores = NormalizedScores::of(played, {{0, 1, ""}, {0, 1, ""}, {0, 1, ""}});
    write_evaluation(kept(), played, curve, origin, asked);
  };
  const auto finish = [&](const std::vector<int64_t>& tasks) {
    remove_incomplete_evaluation(run.path(), identity_of(tasks), asked, asked);
  };
  const auto folder = run.path() / "test-step-4000-worker-incomplete";
  finish(played.tasks);
  EXPECT_TRUE(std::filesystem::is_empty(run.path())) << "nothing was kept";
  keep();
  EXPECT_TRUE(std::filesystem::exists(folder / "normalized_score.svg"));
  // Of another evaluation, of fewer tasks and of fewer episodes.
  origin.checkpoint_step = 3000;
  finish(played.tasks);
  origin.checkpoint_step = 4000;
  origin.worker->env_worker = "other_envs:make_env";
  finish(played.tasks);
  origin.worker->env_worker = "my_envs:make_env";
  finish({38, 62});
  asked.eval_episodes = 11;
  finish(played.tasks);
  EXPECT_TRUE(std::filesystem::exists(folder / "summary.json"));
  asked.eval_episodes = 12;
  finish({38, 51, 62, 70});
  EXPECT_FALSE(std::filesystem::exists(folder));
  // What others have put there stays.
  keep();
  write_file_atomically(folder / "notes.txt", "why it failed");
  finish(played.tasks);
  EXPECT_TRUE(std::filesystem::exists(folder / "notes.txt"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST(EvaluationFolder, ANameSaysWhichWindowIsNotTheRunsOwn) {
  const TemporaryFolder run;
  EvaluationOrigin origin = {"darkroom", 3, 100, 9, 20};
  origin.shown_otherwise["n_transit"] = 20;
  EXPECT_EQ(evaluation_folder(run.path(), evaluation_identity({1, 2}, origin, {}), {}, {}).filename(),
            "test-step-100-window-20");
}

TEST(EvaluationFolder, WhatEverySummaryHasMayBeMissingAndResultsMayDiffer) {
  const TemporaryFolder folder;
  write(folder.path(), some_returns(2));
  const auto summary = nlohmann::ordered_json::parse(read_file(folder.path() / "summary.json"));
  EvaluationOptions options;
  options.eval_seed = 5;
  options.eval_repeats = 2;
  options.eval_episodes = 12;
  const EvaluationOrigin origin = {"darkroom", 3, 4000};
  const auto identity = evaluation_identity({38, 51, 62}, origin, options);
  EXPECT_TRUE(is_same_evaluation(identity, summary));
  EXPECT_TRUE(is_same_evaluation(summary, identity));
  EXPECT_TRUE(is_same_evaluation(evaluation_identity({}, origin, options), summary));
  for (const auto& [key, value] : identity.items()) {
    nlohmann::ordered_json older = summary, other = summary;
    older.erase(key);
    EXPECT_TRUE(is_same_evaluation(identity, older)) << key;
    EXPECT_TRUE(is_same_evaluation(older, identity)) << key;
    other[key] = "another";
    EXPECT_FALSE(is_same_evaluation(identity, other)) << key;
    EXPECT_FALSE(is_same_evaluation(other, identity)) << key;
  }
}

TEST(EvaluationFolder, NamesTasksThatAreGivenByNumber) {
  const TemporaryFolder run;
  EvaluationOptions options;
  options.eval_tasks = "1-2";
  EXPECT_EQ(place_of(run.path(), 300, options), "tasks-1-2-step-300");
  options.eval_tasks = "5";
  EXPECT_EQ(place_of(run.path(), 300, options), "task-5-step-300");
  options.eval_tasks = "1,3,5,7,9,11,13,15,17,19,21";
  EXPECT_EQ(place_of(run.path(), 300, options), "11-tasks-step-300");
}

TEST(EvaluationFolder, WhatCannotBeReadIsNotOverwrittenAndWhatIsOlderIsKnown) {
  const TemporaryFolder run;
  const std::filesystem::path summary = run.path() / "test-step-100" / "summary.json";
  const EvaluationOptions options;
  auto older = evaluation_identity({1, 2}, {"darkroom", 3, 100, 9, 20}, options);
  older.erase("horizon");
  write_file_atomically(summary, older.dump());
  EXPECT_EQ(place_of(run.path(), 100, options), "test-step-100");
  write_file_atomically(summary, "{\"env\": ");
  EXPECT_EQ(place_of(run.path(), 100, options), "test-step-100-1x50");
  std::filesystem::remove(summary);
  write_file_atomically(run.path() / "test-step-100" / "failure.txt", "it failed before");
  EXPECT_EQ(place_of(run.path(), 100, options), "test-step-100");
}

TEST(EvaluationFolder, SummaryAndTableSayWhatWasMeasured) {
  const TemporaryFolder folder;
  const InContextReturns measured = some_returns(2);
  write(folder.path(), measured);
  const auto summary = nlohmann::json::parse(read_file(folder.path() / "summary.json"));
  EXPECT_EQ(summary["env"], "darkroom");
  EXPECT_EQ(summary["env_split_seed"], 3);
  EXPECT_EQ(summary["checkpoint_step"], 4000);
  EXPECT_EQ(summary["eval_tasks"], "test");
  EXPECT_EQ(summary["eval_seed"], 5);
  EXPECT_EQ(summary["tasks"], (std::vector<int64_t>{38, 51, 62}));
  EXPECT_EQ(summary["repeats"], 2);
  EXPECT_EQ(summary["episodes"], 12);
  ASSERT_EQ(summary["mean"].size(), 12U);
  ASSERT_EQ(summary["std"].size(), 12U);
  EXPECT_NEAR(summary["mean"][4], measured.returns.select(2, 4).mean().item<double>(), 1e-6);
  EXPECT_GT(summary["oracle"], summary["random_floor"]);
  EXPECT_THAT(read_file(folder.path() / "learning_curve.svg"),
              testing::HasSubstr("darkroom, 3 test tasks at step 4000; 2 repeats, seed 5"));

  std::ifstream table(folder.path() / "reward_episode.csv");
  std::string line;
  std::getline(table, line);
  EXPECT_EQ(line, "task,episode,reward,std_over_repeats");
  std::getline(table, line);  // task 38: repeats earn 0 and 12 mod 7 = 5 in the first episode
  EXPECT_EQ(line, "38,1,2.5,2.5");
  int64_t lines = 1;
  while (std::getline(table, line)) ++lines;
  EXPECT_EQ(lines, 3 * 12);
}

TEST(EvaluationFolder, TheSummaryIsReadBack) {
  const TemporaryFolder folder;
  const InContextReturns measured = some_returns(2);
  write(folder.path(), measured);
  const EvaluationSummary summary = EvaluationSummary::read(folder.path());
  const LearningCurve curve = LearningCurve::of(measured, TaskFamily::of(EnvironmentOptions{}));
  EXPECT_EQ(summary.mean, curve.mean);
  EXPECT_EQ(summary.last10_mean, curve.last10_mean);
  EXPECT_EQ(summary.oracle, curve.oracle);
  EXPECT_EQ(summary.random_floor, curve.random_floor);
  EXPECT_EQ(summary.identity["repeats"], 2);
  EXPECT_FALSE(summary.identity.contains("mean"));
  write_file_atomically(folder.path() / "summary.json", "{\"mean\": [1]}");
  EXPECT_THROW(EvaluationSummary::read(folder.path()), DataError);
  EXPECT_THROW(EvaluationSummary::read(folder.path() / "none"), DataError);
}

TEST(EvaluationFolder, NumpyReadsWhatWasWritten) {
  const TemporaryFolder folder;
  write(folder.path(), some_returns(2));
  const Finished finished = run_shell(fmt::format(
      "{} {} {}", quoted(ADTRAIN_PYTHON), quoted(ADTRAIN_SOURCE_DIR "/tests/interop/read_evaluation.py"),
      quoted(folder.path().string())));
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_EQ(finished.output, "3 tasks, 2 repeats, 12 episodes\n");
}

}  // namespace
}  // namespace adtrain
