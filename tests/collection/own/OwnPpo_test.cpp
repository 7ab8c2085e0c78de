#include "collection/own/OwnPpo.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "collection/own/LearntLessons.h"

namespace adtrain {
namespace {

using OwnPpoTest = WorkerTest;
using testing::AllOf;
using testing::HasSubstr;

OwnPpo::Learnt learnt(const WorkerOptions& workers, int64_t task, uint64_t seed,
                      const OwnPpoSettings& settings) {
  WorkerPool pool(workers, {});
  return *OwnPpo(pool, task, settings, seed).learn();
}

const Column& column(const RecordedTask& task, ColumnKind kind) {
  for (const Column& candidate : task.columns) {
    if (candidate.type.kind == kind) return candidate;
  }
  throw std::out_of_range("no such column");
}

/// Mean reward of all streams over some steps.
double mean_reward(const RecordedTask& task, int64_t first, int64_t count) {
  const Column& rewards = column(task, ColumnKind::kRewards);
  double sum = 0;
  for (int64_t stream = 0; stream < task.streams; ++stream) {
    for (int64_t step = first; step < first + count; ++step)
      sum += rewards.number(stream * task.steps + step);
  }
  return sum / static_cast<double>(count * task.streams);
}

TEST_F(OwnPpoTest, LearnsInEveryKindOfSpace) {
  struct Case {
    const char* function;
    double first_at_most, last_at_least;
  };
  // By chance a name earns ⅓, a pair (½ + ⅓) / 2; a point at best 0 and at first −2.
  for (const Case& which :
       {Case{"make_names", 0.5, 0.85}, Case{"make_pairs", 0.55, 0.85}, Case{"make_points", -1, -0.3}}) {
    const OwnPpo::Learnt result = learnt(lessons(which.function), 2, 1, short_learning(8000));
    const int64_t steps = result.histories.steps, part = steps / 20;
    EXPECT_LT(mean_reward(result.histories, 0, 16), which.first_at_most) << which.function;
    EXPECT_GT(mean_reward(result.histories, steps - part, part), which.last_at_least) << which.function;
  }
}

/// To be cut off is worth what follows: 0.5 ÷ (1 − 0.9) in the end, and the end of an episode 0.6.
TEST_F(OwnPpoTest, EpisodesThatAreCutOffCountAsIfTheyWentOn) {
  OwnPpoSettings settings = short_learning(6000);
  settings.normalize_observations = false;
  const OwnPpo::Learnt result = learnt(lessons("make_endings"), 0, 1, settings);
  const int64_t steps = result.histories.steps;
  EXPECT_GT(mean_reward(result.histories, 0, 16), 0.52);
  EXPECT_LT(mean_reward(result.histories, steps - 32, 32), 0.51);
}

TEST_F(OwnPpoTest, HistoriesAreWhatTheEnvironmentsDid) {
  const OwnPpo::Learnt result = learnt(lessons("make_names"), 1, 3, short_learning(1000, /*kept_streams=*/5));
  const RecordedTask& task = result.histories;
  ASSERT_EQ(task.streams, 5);
  ASSERT_EQ(task.steps, 128);  // whole rollouts of 16
  const Column& states = column(task, ColumnKind::kObservations);
  const Column& actions = column(task, ColumnKind::kActions);
  const Column& rewards = column(task, ColumnKind::kRewards);
  for (int64_t row = 0; row < task.streams * task.steps; ++row) {
    const int64_t step = row % task.steps, episode = step / 8;
    const bool last = step % 8 == 7, odd = episode % 2 == 1;
    EXPECT_EQ(column(task, ColumnKind::kTerminations).number(row), last && !odd ? 1 : 0) << row;
    EXPECT_EQ(column(task, ColumnKind::kTruncations).number(row), last && odd ? 1 : 0) << row;
    // The second task asks for what was seen, and one more.
    const auto wanted = (static_cast<int64_t>(states.number(row)) - 5 + 1) % 3;
    EXPECT_EQ(rewards.number(row), actions.number(row) + 1 == static_cast<double>(wanted) ? 1 : 0) << row;
  }
}

TEST_F(OwnPpoTest, RealActionsAreRecordedAsTheyWerePlayed) {
  const RecordedTask task = learnt(lessons("make_points"), 0, 3, short_learning(2000)).histories;
  const Column& actions = column(task, ColumnKind::kActions);
  double smallest = 0, largest = 0;
  for (int64_t i = 0; i < 2 * task.streams * task.steps; ++i) {
    smallest = std::min(smallest, actions.number(i / 2, i % 2));
    largest = std::max(largest, actions.number(i / 2, i % 2));
  }
  EXPECT_EQ(smallest, -1);
  EXPECT_EQ(largest, 1);
}

TEST_F(OwnPpoTest, IsAFunctionOfTaskAndSeedWhateverTheNumberOfWorkers) {
  const auto histories = [](int64_t workers, int64_t task, uint64_t seed) {
    std::string bytes;
    const RecordedTask recorded =
        learnt(lessons("make_points", workers), task, seed, short_learning(1500)).histories;
    for (const Column& each : recorded.columns) bytes.append(each.bytes.begin(), each.bytes.end());
    return bytes;
  };
  const std::string once = histories(1, 1, 9);
  EXPECT_EQ(histories(1, 1, 9), once);
  EXPECT_EQ(histories(3, 1, 9), once);
  EXPECT_NE(histories(1, 1, 10), once);
  EXPECT_NE(histories(1, 2, 9), once);
}

/// Not one that blames the environment for what it makes of a NaN.
TEST_F(OwnPpoTest, DivergenceIsAnErrorThatNamesTheLearningRate) {
  for (const char* function : {"make_names", "make_pairs", "make_points"}) {
    OwnPpoSettings settings = short_learning(8000);
    settings.ppo.learning_rate = 1e30;
    try {
      learnt(lessons(function), 2, 1, settings);
      ADD_FAILURE() << function << ": nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kNonFinite) << function;
      EXPECT_THAT(error.what(), AllOf(HasSubstr("task 2 (high), step "), HasSubstr("after round "),
                                      HasSubstr("source_lr, which is 1e+30")))
          << function;
    }
  }
}

TEST_F(OwnPpoTest, StopsBetweenRollouts) {
  WorkerPool pool(lessons("make_names"), {});
  int asked = 0;
  EXPECT_FALSE(OwnPpo(pool, 0, short_learning(4000), 9).learn([&asked] { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace adtrain
