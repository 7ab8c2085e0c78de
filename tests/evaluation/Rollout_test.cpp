#include "evaluation/Rollout.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ScriptedPolicies.h"
#include "evaluation/GridLearners.h"

namespace adtrain {
namespace {

TaskFamily darkroom() {
  return TaskFamily::of(EnvironmentOptions{});
}

std::vector<Trial> all_tasks(const TaskFamily& family, int64_t repeats) {
  std::vector<Trial> trials;
  for (int64_t task = 0; task < family.task_count(); ++task) {
    for (int64_t repeat = 0; repeat < repeats; ++repeat) trials.push_back({task, repeat});
  }
  return trials;
}

ModelOptions plain_model(int64_t n_transit) {
  ModelOptions model;
  model.n_transit = n_transit;
  return model;
}

AlgorithmDistillation::Predictions uniform_policy(const Batch& batch) {
  return {at::zeros({batch.size(), 5}), {}};
}

/// Darkroom as its definition says, step by step, for one task: what a context must hold.
struct Simulation {
  int64_t task;
  int32_t state[2] = {4, 4};
  int steps = 0;

  SeenTransition step(int32_t action, bool terminal_observation) {
    SeenTransition t{{state[0], state[1]}, action, 0, {}};
    state[0] = std::clamp(state[0] + (action == 0) - (action == 1), 0, 8);
    state[1] = std::clamp(state[1] + (action == 2) - (action == 3), 0, 8);
    t.reward = state[0] == task / 9 && state[1] == task % 9 ? 1.0F : 0.0F;
    const bool end = ++steps % 20 == 0;
    if (terminal_observation) std::copy_n(state, 2, t.next_state);
    if (end) state[0] = state[1] = 4;
    if (!terminal_observation) std::copy_n(state, 2, t.next_state);
    return t;
  }
};

/// Checks every context it is shown against simulations of the actions found there, and acts wildly.
struct Auditor {
  explicit Auditor(const std::vector<Trial>& trials, bool terminal) : terminal_observation(terminal) {
    for (const Trial& trial : trials) simulations.push_back({trial.task});
  }

  AlgorithmDistillation::Predictions operator()(const Batch& batch) {
    const int64_t newest = batch.states.size(1) - 2;
    for (int64_t row = 0; row < batch.size() && newest >= 0; ++row) {
      Simulation& simulation = simulations[static_cast<size_t>(row)];
      const SeenTransition t = seen(batch, row, newest);
      EXPECT_EQ(t, simulation.step(t.action, terminal_observation)) << "step " << simulation.steps;
      EXPECT_EQ(batch.states[row][newest + 1][0].item<int32_t>(), simulation.state[0]);
      EXPECT_EQ(batch.states[row][newest + 1][1].item<int32_t>(), simulation.state[1]);
      earned += static_cast<double>(t.reward);
    }
    return hash_policy(batch);
  }

  bool terminal_observation;
  std::vector<Simulation> simulations;
  double earned = 0;
};

TEST(Rollout, TheContextHoldsWhatTheEnvironmentDid) {
  const TaskFamily family = darkroom();
  const std::vector<Trial> trials = {{40, 0}, {31, 0}, {40, 1}, {41, 0}};
  for (const bool terminal_observation : {false, true}) {
    EvaluationOptions options;
    options.eval_terminal_observation = terminal_observation;
    Rollout rollout(family, trials, plain_model(50), options);
    Auditor auditor(trials, terminal_observation);
    double returns = 0;
    for (int episode = 0; episode < 5; ++episode) {
      for (const float earned : rollout.run_episode(std::ref(auditor)))
        returns += static_cast<double>(earned);
    }
    EXPECT_EQ(auditor.simulations.front().steps, 5 * 20 - 1)
        << "every step but the last is seen by a query after it";
    EXPECT_GE(returns, auditor.earned);
    EXPECT_LE(returns, auditor.earned + static_cast<double>(trials.size()));
    EXPECT_GT(auditor.earned, 0);
  }
}

TEST(Rollout, APolicyThatKnowsTheGoalReachesTheBestReturn) {
  const TaskFamily family = darkroom();
  const std::vector<Trial> trials = all_tasks(family, 1);
  const Predictor oracle = [](const Batch& batch) {
    at::Tensor logits = at::zeros({batch.size(), 5});
    const at::Tensor query = batch.states.select(1, batch.states.size(1) - 1);
    for (int64_t task = 0; task < batch.size(); ++task) {
      const int64_t dx = task / 9 - query[task][0].item<int64_t>();
      const int64_t dy = task % 9 - query[task][1].item<int64_t>();
      const int64_t action = dx > 0 ? 0 : dx < 0 ? 1 : dy > 0 ? 2 : dy < 0 ? 3 : 4;
      logits[task][action] = 50;
    }
    return AlgorithmDistillation::Predictions{logits, {}};
  };
  Rollout rollout(family, trials, plain_model(3), EvaluationOptions{});
  for (int episode = 0; episode < 2; ++episode) {
    const std::vector<float> returns = rollout.run_episode(oracle);
    for (size_t i = 0; i < trials.size(); ++i) {
      EXPECT_EQ(static_cast<double>(returns[i]), family.best_return(trials[i].task))
          << "task " << trials[i].task;
    }
  }
}

TEST(Rollout, AUniformPolicyEarnsTheRandomReturn) {
  for (const char* env : {"darkroom", "darkroompermuted"}) {
    EnvironmentOptions environment;
    environment.env = env;
    const TaskFamily family = TaskFamily::of(environment);
    const std::vector<Trial> trials = all_tasks(family, 10);
    Rollout rollout(family, trials, plain_model(2), EvaluationOptions{});
    double total = 0;
    double squares = 0;
    double expected = 0;
    constexpr int kEpisodes = 4;
    for (int episode = 0; episode < kEpisodes; ++episode) {
      for (const float earned : rollout.run_episode(uniform_policy)) {
        total += static_cast<double>(earned);
        squares += static_cast<double>(earned) * static_cast<double>(earned);
      }
    }
    for (const Trial& trial : trials)
      expected += family.random_return(trial.task) / static_cast<double>(trials.size());
    const double count = static_cast<double>(trials.size()) * kEpisodes;
    const double deviation = std::sqrt(squares / count / count);  // of the mean, bounded from above
    EXPECT_NEAR(total / count, expected, 4.5 * deviation) << env;
  }
}

TEST(Rollout, ATrialEarnsTheSameWhoeverRunsBesideIt) {
  const TaskFamily family = darkroom();
  ModelOptions compressed = plain_model(80);
  compressed.use_compressed_context = true;
  compressed.compress_interval = 12;
  for (const ModelOptions& model : {plain_model(30), compressed}) {
    const auto returns = [&](const std::vector<Trial>& trials) {
      Rollout rollout(family, trials, model, EvaluationOptions{});
      std::vector<std::vector<float>> episodes;
      for (int episode = 0; episode < 4; ++episode) episodes.push_back(rollout.run_episode(hash_policy));
      return episodes;
    };
    const std::vector<Trial> trials = {{40, 0}, {40, 1}, {39, 0}, {49, 3}};
    const auto together = returns(trials);
    for (size_t i = 0; i < trials.size(); ++i) {
      const auto alone = returns({trials[i]});
      for (size_t episode = 0; episode < alone.size(); ++episode)
        EXPECT_EQ(alone[episode][0], together[episode][i]);
    }
    EXPECT_NE(returns({{40, 0}}), returns({{40, 1}})) << "repeats draw from streams of their own";
  }
}

TEST(Rollout, ClosingRegionsCostsNoEnvironmentStep) {
  const TaskFamily family = darkroom();
  ModelOptions model = plain_model(80);
  model.use_compressed_context = true;
  model.compress_interval = 7;
  int queries = 0;
  int64_t shown = 0;
  const Predictor stays_and_closes = [&](const Batch& batch) {
    AlgorithmDistillation::Predictions predictions{at::zeros({batch.size(), 5}),
                                                   at::zeros({batch.size(), 3})};
    predictions.actions.select(1, 4).fill_(100);
    predictions.token_types[0][TokenType::kEndCompress] =
        batch.size() == 2 ? 1 : 0;  // the first trial closes always
    ++queries;
    shown += batch.size();
    return predictions;
  };
  // Whoever stays at the start, which is task 40's goal, earns each of the 20 steps.
  Rollout rollout(family, std::vector<Trial>{{40, 0}, {40, 1}}, model, EvaluationOptions{});
  EXPECT_THAT(rollout.run_episode(stays_and_closes), testing::ElementsAre(20, 20));
  // 20 queries of both; the first trial's region is never empty again, so it asks twice from the second step
  // on; the second trial's regions are full before the steps 8 and 15, when the two ask again together.
  EXPECT_EQ(queries, 20 + 19);
  EXPECT_EQ(shown, 2 * 20 + 19 + 2);
}

/// Environments whose `i`-th episode of task t lasts 1 + (t + i) mod 4 steps, observe (t, step) and pay what
/// was done. They complain where a step is begun before the last one was awaited.
class UnequalEpisodes final : public SteppedEnvironments {
 public:
  explicit UnequalEpisodes(std::vector<int32_t> tasks)
      : tasks_(std::move(tasks)), episodes_(tasks_.size()), rewards_(tasks_.size()), ended_(tasks_.size()) {
    for (const int32_t task : tasks_) states_.insert(states_.end(), {task, 0});
    next_states_ = states_;
  }
  int64_t size() const override { return std::ssize(tasks_); }
  std::span<const int32_t> states() const override { return states_; }
  void begin_step(std::span<const int32_t> actions) override {
    EXPECT_FALSE(std::exchange(is_stepping_, true));
    actions_.assign(actions.begin(), actions.end());
  }
  void finish_step() override {
    EXPECT_TRUE(std::exchange(is_stepping_, false));
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const int32_t step = ++states_[2 * i + 1];
      std::copy_n(&states_[2 * i], 2, &next_states_[2 * i]);
      rewards_[i] = actions_[i] + 0.5;
      ended_[i] = step == 1 + (tasks_[i] + episodes_[i]) % 4 ? 1 : 0;
      if (ended_[i] == 0) continue;
      states_[2 * i + 1] = 0;
      ++episodes_[i];
    }
  }
  std::span<const int32_t> next_states() const override { return next_states_; }
  std::span<const double> rewards() const override { return rewards_; }
  std::span<const uint8_t> ended() const override { return ended_; }

 private:
  std::vector<int32_t> tasks_, episodes_, states_, next_states_, actions_;
  std::vector<double> rewards_;
  std::vector<uint8_t> ended_;
  bool is_stepping_ = false;
};

TEST(Rollout, EpisodesOfAnyLengthInPartsEarnWhatTheyEarnAlone) {
  ModelOptions compressed = plain_model(80);
  compressed.use_compressed_context = true;
  compressed.compress_interval = 5;
  for (const ModelOptions& model : {plain_model(9), compressed}) {
    const auto returns = [&](const std::vector<std::vector<int32_t>>& parts) {
      std::vector<Rollout::Part> learners;
      for (const std::vector<int32_t>& tasks : parts) {
        std::vector<Trial> trials;
        for (const int32_t task : tasks) trials.push_back({task, 0});
        learners.push_back({std::make_unique<GridLearners>(std::make_unique<UnequalEpisodes>(tasks), trials,
                                                           model, EvaluationOptions{}),
                            trials.size()});
      }
      Rollout rollout(std::move(learners));
      std::vector<std::vector<float>> episodes;
      for (int episode = 0; episode < 6; ++episode) episodes.push_back(rollout.run_episode(hash_policy));
      return episodes;
    };
    const auto together = returns({{1, 6, 0}, {3, 5}});
    const std::vector<int32_t> tasks = {1, 6, 0, 3, 5};
    for (size_t i = 0; i < tasks.size(); ++i) {
      const auto alone = returns({{tasks[i]}});
      for (size_t episode = 0; episode < alone.size(); ++episode) {
        EXPECT_EQ(alone[episode][0], together[episode][i]) << "task " << tasks[i] << ", episode " << episode;
        const float steps = static_cast<float>(1 + (static_cast<size_t>(tasks[i]) + episode) % 4);
        EXPECT_GE(together[episode][i], 0.5F * steps);
        EXPECT_LE(together[episode][i], 4.5F * steps);
      }
    }
  }
}

TEST(Rollout, NoGradientIsRecorded) {
  const TaskFamily family = darkroom();
  Rollout rollout(family, std::vector<Trial>{{0, 0}}, plain_model(2), EvaluationOptions{});
  bool recorded = false;
  rollout.run_episode([&](const Batch& batch) {
    recorded |= at::GradMode::is_enabled();
    return uniform_policy(batch);
  });
  EXPECT_FALSE(recorded);
}

}  // namespace
}  // namespace adtrain
