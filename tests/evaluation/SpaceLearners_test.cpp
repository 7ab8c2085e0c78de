#include "evaluation/spaces/SpaceLearners.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "environments/WorkerModules.h"
#include "evaluation/Rollouts.h"

namespace adtrain {
namespace {

class PlayInAnySpace : public WorkerTest {};

/// What a policy was shown and what it answered, in one place.
struct Asked {
  Batch batch;
  at::Tensor answer;
};

/// Plays three episodes of some tasks by a policy, which is asked for all of them at once.
std::vector<Asked> played(const std::string& function, const TaskSpaces& spaces, int64_t window,
                          const std::function<at::Tensor(const Batch&)>& policy,
                          std::vector<std::vector<float>>& returns) {
  WorkerOptions worker = worker_of(function);
  worker.env_overlap = false;
  WorkerPool pool(worker, {});
  pool.hello().expect_spaces(spaces, function);
  std::vector<Asked> asked;
  Rollouts::Player player;
  player.predict = [&](const Batch& batch) {
    asked.push_back({batch.to(at::kCPU), policy(batch)});
    for (at::Tensor* part :
         {&asked.back().batch.states, &asked.back().batch.actions, &asked.back().batch.rewards,
          &asked.back().batch.begins, &asked.back().batch.before_action})
      *part = part->clone();
    return AlgorithmDistillation::Predictions{asked.back().answer, {}};
  };
  player.model.n_transit = window;
  player.shape.spaces = {spaces};
  player.scale = [](std::span<const Trial> trials) {
    return SpaceScale{at::full({std::ssize(trials)}, 0.5F), {}, {}};
  };
  EvaluationOptions options;
  options.eval_sampling = Sampling::kGreedy;
  const std::vector<Trial> trials = {{0, 0}, {1, 0}};
  const RunEpisode episode = Rollouts::in_workers(player, pool, options).begin(trials);
  for (int i = 0; i < 3; ++i) returns.push_back(episode());
  return asked;
}

TEST_F(PlayInAnySpace, TheNetworkSeesWhatWasPlayed) {
  const TaskSpaces spaces = {Space::box({3}, {-INFINITY}, {INFINITY}), Space::box({2}, {-1}, {1}), {}};
  std::vector<std::vector<float>> returns;
  const auto asked = played(
      "echoes:make_echo", spaces, 4,
      [](const Batch&) {
        return at::randn({2, 2}) * 2;
      },
      returns);
  ASSERT_GE(asked.size(), 7U);
  const std::vector<int64_t> lengths = {2, 3};
  for (size_t step = 0; step < asked.size(); ++step) {
    const Batch& batch = asked[step].batch;
    const auto length = static_cast<int64_t>(std::min<size_t>(step + 1, 4));
    ASSERT_EQ(batch.states.size(1), length);
    EXPECT_EQ(batch.states.scalar_type(), at::kFloat)
        << "as the network was trained, not as the environment has it";
    for (int64_t back = 1; back < length; ++back) {
      const at::Tensor answer = asked[step - static_cast<size_t>(back)].answer.clamp(-1, 1);
      EXPECT_TRUE(batch.actions.select(1, length - 1 - back).equal(answer)) << "clipped, as it was played";
      EXPECT_TRUE(batch.rewards.select(1, length - 1 - back).equal(answer.select(1, 0) * 0.5));
    }
    if (step >= 4) {
      EXPECT_TRUE(batch.before_action.equal(asked[step - 4].answer.clamp(-1, 1)));
    }
    for (int64_t row = 0; row < 2; ++row) {
      const auto in_episode = static_cast<int64_t>(step) % lengths[static_cast<size_t>(row)];
      EXPECT_EQ(batch.states[row][length - 1][0].item<float>(), static_cast<float>(in_episode));
      EXPECT_EQ(batch.begins[row][length - 1].item<uint8_t>(), in_episode == 0 ? 1 : 0);
    }
  }
  float first_return = 0;
  for (size_t step = 0; step < 2; ++step) first_return += asked[step].answer.clamp(-1, 1)[0][0].item<float>();
  EXPECT_NEAR(returns[0][0], first_return, 1e-6) << "returns are not scaled";
}

TEST_F(PlayInAnySpace, DigitsAreAsTheNetworkHasThem) {
  const TaskSpaces packed = {
      Space::multi_discrete({2}, {156}),
      Space{Space::Kind::kMultiDiscrete, ElementType::kUint8, {2}, {3, 2}, {5, 0}, {}, {}},
      {13, 12}};
  WorkerOptions worker = worker_of("echoes:make_symbols");
  worker.max_episode_steps = 4;
  WorkerPool pool(worker, {});
  pool.hello().expect_spaces(packed, "echoes");
  std::vector<Batch> seen;
  Rollouts::Player player;
  player.predict = [&](const Batch& batch) {
    seen.push_back(batch.to(at::kCPU));
    seen.back().states = batch.states.clone();
    return AlgorithmDistillation::Predictions{at::tensor({0.F, 0.F, 9.F, 0.F, 9.F}).expand({1, 5}), {}};
  };
  player.model.n_transit = 3;
  player.shape.spaces = {packed};
  EvaluationOptions options;
  const std::vector<Trial> trials = {{0, 0}};
  const auto returns = Rollouts::in_workers(player, pool, options).begin(trials)();
  EXPECT_EQ(returns, std::vector<float>{4});
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_TRUE(seen[0].states.equal(at::tensor({12 * 12 + 11, 0}).to(at::kLong).view({1, 1, 2})));
  EXPECT_TRUE(
      seen[1].states.select(1, 1).equal(at::tensor({1 * 12 + 3, 7 * 12 + 1}).to(at::kLong).view({1, 2})));
  EXPECT_TRUE(seen[1].actions.select(1, 0).equal(at::tensor({7, 1}).to(at::kByte).view({1, 2})));
}

TEST_F(PlayInAnySpace, ARollingPredictorIsShownEachStepOnce) {
  WorkerOptions worker = worker_of("echoes:make_echo");
  WorkerPool pool(worker, {});
  int made = 0;
  std::vector<std::vector<float>> steps(2);
  Rollouts::Player player;
  player.predict = [](const Batch&) -> AlgorithmDistillation::Predictions {
    throw std::logic_error("whole windows are not asked for");
  };
  player.model.n_transit = 3;
  player.shape.spaces = {{Space::box({3}, {-INFINITY}, {INFINITY}), Space::box({2}, {-1}, {1}), {}}};
  player.kept.slides = true;
  player.kept.begin = [&]() -> Predictor {
    return [&seen = steps[static_cast<size_t>(made++)]](const Batch& step) {
      EXPECT_EQ(step.states.size(1), 1);
      seen.push_back(step.states[0][0][0].item<float>());
      EXPECT_EQ(step.before_reward[0].item<float>(), seen.size() == 1 ? 0 : 0.25F);
      return AlgorithmDistillation::Predictions{at::full({1, 2}, 0.25F), {}};
    };
  };
  const std::vector<Trial> trials = {{0, 0}, {1, 0}};
  const RunEpisode episode = Rollouts::in_workers(player, pool, EvaluationOptions()).begin(trials);
  for (int i = 0; i < 2; ++i) episode();
  EXPECT_EQ(made, 2) << "one for each half of the environments";
  EXPECT_EQ(steps[0], (std::vector<float>{0, 1, 0, 1}));
  EXPECT_EQ(steps[1], (std::vector<float>{0, 1, 2, 0, 1, 2}));
}

/// Where positions count from the window's first step.
TEST_F(PlayInAnySpace, RowsThatDoNotSlideAreShownAsAWholeBeyondTheWindow) {
  WorkerPool pool(worker_of("echoes:make_echo"), {});
  std::vector<int64_t> kept, shown;
  Rollouts::Player player;
  const auto answer = [] { return AlgorithmDistillation::Predictions{at::full({1, 2}, 0.25F), {}}; };
  player.predict = [&](const Batch& window) {
    shown.push_back(window.states.size(1));
    return answer();
  };
  player.model.n_transit = 4;
  player.shape.spaces = {{Space::box({3}, {-INFINITY}, {INFINITY}), Space::box({2}, {-1}, {1}), {}}};
  player.kept.begin = [&]() -> Predictor {
    return [&](const Batch& step) {
      kept.push_back(step.states.size(1));
      return answer();
    };
  };
  const std::vector<Trial> trials = {{1, 0}};
  const RunEpisode episode = Rollouts::in_workers(player, pool, EvaluationOptions()).begin(trials);
  for (int i = 0; i < 2; ++i) episode();
  EXPECT_EQ(kept, std::vector<int64_t>(4, 1));
  EXPECT_EQ(shown, std::vector<int64_t>(2, 4)) << "of two episodes of three steps";
}

TEST_F(PlayInAnySpace, RandomActionsArePlayedWithoutAModel) {
  WorkerPool pool(worker_of("echoes:make_echo"), {});
  EvaluationOptions options;
  std::vector<Trial> trials;
  for (int64_t repeat = 0; repeat < 64; ++repeat) trials.push_back({1, repeat});
  const auto episode = Rollouts::at_random(pool, options).begin(trials);
  double sum = 0;
  for (const float one : episode()) {
    EXPECT_LE(std::abs(one), 3);
    sum += one;
  }
  EXPECT_NE(sum, 0);
  EXPECT_NEAR(sum / 64, 0, 0.7) << "the mean of three uniform numbers' sums, deviation 1 / 8";
}

}  // namespace
}  // namespace adtrain
