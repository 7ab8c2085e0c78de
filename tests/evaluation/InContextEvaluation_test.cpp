#include "evaluation/InContextEvaluation.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallEvaluation.h"
#include "base/Error.h"
#include "base/File.h"
#include "collectives/SingleCommunicator.h"
#include "environments/worker/WorkerFault.h"
#include "evaluation/NpyFile.h"
#include "evaluation/Rollout.h"
#include "support/Patience.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

TEST(InContextEvaluation, EveryTaskAndRepeatStandsInItsPlace) {
  SingleCommunicator alone;
  const InContextReturns measured = small_evaluation(alone).value();
  ASSERT_EQ(measured.returns.sizes(), (at::IntArrayRef{3, 7, 3}));
  const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
  ModelOptions model;
  model.n_transit = 25;
  for (size_t task = 0; task < measured.tasks.size(); ++task) {
    for (int64_t repeat = 0; repeat < 7; ++repeat) {
      Rollout rollout(family, std::vector<Trial>{{measured.tasks[task], repeat}}, model, EvaluationOptions{});
      for (int64_t episode = 0; episode < 3; ++episode) {
        EXPECT_EQ(measured.returns[static_cast<int64_t>(task)][repeat][episode].item<float>(),
                  rollout.run_episode(hash_policy)[0]);
      }
    }
  }
}

/// Runs evaluate_as_rank under mpirun; what each rank wrote.
std::vector<std::string> outputs_of_ranks(int ranks, const std::string& stopper) {
  const TemporaryFolder folder;
  const std::string output = (folder.path() / "rank").string();
  const Finished finished = run_shell(fmt::format(
      "OMP_NUM_THREADS=1 timeout {} mpirun --allow-run-as-root --oversubscribe "
      "--bind-to none -np {} {} {} {}",
      120 * kPatience, ranks, quoted(ADTRAIN_BINARY_DIR "/evaluate_as_rank"), quoted(output), stopper));
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  std::vector<std::string> outputs;
  for (int rank = 0; rank < ranks; ++rank) outputs.push_back(read_file(fmt::format("{}.{}", output, rank)));
  return outputs;
}

TEST(InContextEvaluation, RanksUnderMpirunMergeToTheSameBits) {
  SingleCommunicator alone;
  const std::string expected =
      npy_bytes(small_evaluation(alone).value().returns) + npy_bytes(planned_evaluation(alone));
  for (const int ranks : {2, 4})
    EXPECT_THAT(outputs_of_ranks(ranks, ""), testing::Each(expected)) << ranks << " ranks";
}

TEST(InContextEvaluation, OneRankThatIsToldToStopStopsAll) {
  EXPECT_THAT(outputs_of_ranks(3, "1"), testing::ElementsAre("stopped", "stopped", "stopped"));
}

TEST(InContextEvaluation, ProgressCountsToTheEndAndMayStopIt) {
  SingleCommunicator alone;
  const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
  EvaluationOptions options;
  options.eval_episodes = 4;
  options.eval_batch = 1;
  ModelOptions model;
  model.n_transit = 3;
  const InContextEvaluation evaluation({1, 2, 3}, options);
  const Rollouts rollouts = Rollouts::stepwise(hash_policy, family, model, options);

  std::vector<int64_t> done;
  const auto all = evaluation.measure(rollouts, alone, [&](int64_t count, int64_t total) {
    EXPECT_EQ(total, 3 * 4);
    done.push_back(count);
    return true;
  });
  EXPECT_TRUE(all.has_value());
  EXPECT_THAT(done, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));

  int64_t calls = 0;
  EXPECT_EQ(evaluation.measure(rollouts, alone, [&](int64_t, int64_t) { return ++calls < 6; }), std::nullopt);
  EXPECT_EQ(calls, 6);
}

/// What is kept where the environments of the group whose first task is `broken` fail in an episode.
InContextReturns kept_of(const std::vector<int64_t>& tasks, int64_t repeats, int64_t batch, int64_t broken,
                         int64_t broken_episode) {
  EvaluationOptions options;
  options.eval_episodes = 5;
  options.eval_repeats = repeats;
  options.eval_batch = batch;
  const auto begin = [=](std::span<const Trial> trials) -> RunEpisode {
    const std::vector<Trial> members(trials.begin(), trials.end());
    return [=, episode = int64_t{0}]() mutable {
      ++episode;
      if (members.front().task == broken && episode == broken_episode)
        throw WorkerFault(ExitCode::kEnvironment, "killed");
      std::vector<float> returns;
      for (const Trial& trial : members)
        returns.push_back(static_cast<float>(100 * trial.task + 10 * trial.repeat + episode));
      return returns;
    };
  };
  SingleCommunicator alone;
  std::optional<InContextReturns> kept;
  const auto keep = [&](const InContextReturns& played) { kept = played; };
  EXPECT_THROW(InContextEvaluation(tasks, options).measure({begin, "here"}, alone, {}, keep), WorkerFault);
  return kept.value();
}

TEST(InContextEvaluation, AttentionIsNotCompiledForEachShapeMeanwhile) {
  SingleCommunicator alone;
  const auto compiles = [] { return at::globalContext().userEnabledCuDNNSDP(); };
  ASSERT_TRUE(compiles());
  const InContextEvaluation evaluation({1}, EvaluationOptions{});
  int64_t asked = 0;
  Rollouts rollouts = {[&](std::span<const Trial> trials) -> RunEpisode {
                         return [&asked, compiles, count = trials.size()] {
                           EXPECT_FALSE(compiles());
                           if (++asked == 2) throw WorkerFault(ExitCode::kEnvironment, "they failed");
                           return std::vector<float>(count, 1.0F);
                         };
                       },
                       ""};
  EXPECT_THROW(evaluation.measure(rollouts, alone, nullptr, nullptr), WorkerFault);
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(compiles());
}

TEST(InContextEvaluation, WhatWasPlayedBeforeEnvironmentsFailedIsKept) {
  const InContextReturns one_group = kept_of({3, 1, 2}, 2, 6, 3, 4);
  EXPECT_THAT(one_group.tasks, testing::ElementsAre(3, 1, 2));
  ASSERT_EQ(one_group.returns.sizes(), (at::IntArrayRef{3, 2, 3}));
  EXPECT_EQ(one_group.returns[1][1][2].item<float>(), 113);

  const InContextReturns complete = kept_of({3, 1, 2}, 2, 2, 2, 4);
  EXPECT_THAT(complete.tasks, testing::ElementsAre(3, 1));
  ASSERT_EQ(complete.returns.sizes(), (at::IntArrayRef{2, 2, 5})) << "10 complete episodes are more than 9";
  EXPECT_EQ(complete.returns[0][1][4].item<float>(), 315);

  EXPECT_TRUE(kept_of({3, 1}, 1, 2, 3, 1).tasks.empty()) << "nothing was played";
}

TEST(InContextEvaluation, GroupsAreOfEvenSizeAndWithinTheLimit) {
  SingleCommunicator alone;
  const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
  EvaluationOptions options;
  options.eval_episodes = 1;
  options.eval_batch = 4;
  ModelOptions model;
  model.n_transit = 2;
  std::vector<int64_t> sizes;
  const Predictor recorder = [&](const Batch& batch) {
    if (batch.states.size(1) == 1) sizes.push_back(batch.size());
    return hash_policy(batch);
  };
  InContextEvaluation({1, 2, 3, 4, 5, 6, 7, 8, 9}, options)
      .measure(Rollouts::stepwise(recorder, family, model, options), alone);
  EXPECT_THAT(sizes, testing::ElementsAre(3, 3, 3));
}

TEST(InContextEvaluation, TheSplitSaysWhichTasks) {
  const TaskSplit split{{4, 0, 2}, {3, 1}};
  const auto tasks_of = [](const std::string& tasks, const TaskSplit& of,
                           std::optional<int64_t> limit = std::nullopt) {
    EvaluationOptions options;
    options.eval_tasks = tasks;
    options.eval_task_limit = limit;
    return evaluated_tasks(options, of);
  };
  EXPECT_THAT(tasks_of("test", split), testing::ElementsAre(3, 1));
  EXPECT_THAT(tasks_of("train", split), testing::ElementsAre(4, 0, 2));
  EXPECT_THAT(tasks_of("all", split), testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(tasks_of("all", {{7, 0}, {3}}), testing::ElementsAre(0, 3, 7)) << "of those that there are";
  EXPECT_THAT(tasks_of("60,2-3", split), testing::ElementsAre(2, 3, 60));
  EXPECT_THAT(tasks_of("train", split, 2), testing::ElementsAre(4, 0));
  EXPECT_THAT(tasks_of("train", split, 9), testing::ElementsAre(4, 0, 2));
}

TEST(InContextEvaluation, ASideOfTheSplitWithoutTasksIsAConfigurationError) {
  try {
    evaluated_tasks(EvaluationOptions{}, {{1, 0}, {}});
    FAIL() << "expected an error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("0 test"), testing::HasSubstr("train_env_ratio")));
  }
}

}  // namespace
}  // namespace adtrain
