// Planning in what a network has learnt of the environment.

#include "evaluation/BeamSearch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Gpu.h"
#include "evaluation/Planner.h"
#include "evaluation/Rollouts.h"
#include "evaluation/SlidingContext.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

constexpr int64_t kHorizon = 3;

std::unique_ptr<AlgorithmDistillation> random_model(uint64_t seed, const std::string& name = "pre_norm") {
  testing::Variant variant = testing::variant(name);
  variant.options.dynamics = true;
  return testing::small_model(variant, seed);
}

EvaluationOptions search_options(int64_t beams, int64_t draws, Sampling sampling) {
  EvaluationOptions options;
  options.planning_horizon = kHorizon;
  options.beam_k = beams;
  options.beam_draws = draws;
  options.eval_sampling = sampling;
  return options;
}

/// Rows whose histories have these lengths.
PlannedRows random_rows(const BeamSearch& search, const std::vector<int64_t>& lengths) {
  const auto rows = static_cast<int64_t>(lengths.size());
  return {testing::random_plain(rows, search.history()), at::tensor(lengths, at::kLong),
          at::randint(9, {rows, 2}, at::kInt), at::rand({rows, search.draws()})};
}

TEST(BeamSearch, WithAllBeamsItFindsWhatTryingEveryCourseFinds) {
  const auto seed = static_cast<uint64_t>(at::randint(1 << 30, {1}, at::kLong).item<int64_t>());
  SCOPED_TRACE(seed);
  const at::NoGradGuard no_grad;
  for (const char* name : {"pre_norm", "post_norm", "xland_transition"}) {
    SCOPED_TRACE(name);
    const auto model = random_model(seed, name);
    BeamSearch search(*model, search_options(25, 5, Sampling::kGreedy));
    EXPECT_EQ(search.draws(), 0);
    PlannedRows rows = random_rows(search, {6, 1, 4});
    rows.history.rewards.select(1, 5).fill_(1);
    rows.history.rewards[2].zero_();  // where no reward is known, none is counted
    const BeamSearch::Plan plan = search(rows);
    EXPECT_EQ(plan.actions[2].item<int64_t>(), plan.logits[2].argmax().item<int64_t>());
    for (int64_t row = 0; row < 3; ++row) {
      const auto imagination = model->imagination();
      std::array<double, 5> best;  // of the courses that begin with each action
      best.fill(-1);
      for (int course = 0; course < 125; ++course) {
        auto outlook = imagination->begin(testing::part(rows.history, 0, row, 1),
                                          rows.lengths.narrow(0, row, 1), rows.states.narrow(0, row, 1));
        double earned = 0;
        for (int depth = 0, rest = course; depth < kHorizon; ++depth, rest /= 5) {
          if (row < 2 && outlook.rewards[0][rest % 5].item<double>() > 0.5) earned += 1;
          const auto later = outlook.actions[0].gt(outlook.actions[0][rest % 5]).sum().item<double>();
          earned -= later / (2 * 5 * kHorizon);
          if (depth + 1 < kHorizon)
            outlook = imagination->go_on(at::zeros({1}, at::kLong), at::full({1}, rest % 5, at::kLong));
        }
        double& of_first = best.at(static_cast<size_t>(course % 5));
        of_first = std::max(of_first, earned);
      }
      const double right = *std::ranges::max_element(best);
      EXPECT_NEAR(plan.returns[row].item<double>(), right, 1e-5);
      const auto taken = static_cast<size_t>(plan.actions[row].item<int64_t>());
      EXPECT_NEAR(best.at(taken), right, 1e-9) << "courses that earn the same may begin with either action";
    }
  }
}

TEST(BeamSearch, OneBeamOfTheMostProbableActionIsThePolicy) {
  const auto model = random_model(5);
  BeamSearch search(*model, search_options(1, 1, Sampling::kGreedy));
  const PlannedRows rows = random_rows(search, {6, 2, 0, 5});
  const BeamSearch::Plan plan = search(rows);
  EXPECT_TRUE(at::equal(plan.actions, plan.logits.argmax(1)));
}

TEST(BeamSearch, ActionsAreDrawnFromThePolicyAtItsTemperature) {
  const auto model = random_model(6);
  EvaluationOptions options = search_options(1, 1, Sampling::kSample);
  options.eval_temperature = 0.6;
  constexpr int64_t kTrials = 4000;
  std::vector<Trial> trials;
  for (int64_t repeat = 0; repeat < kTrials; ++repeat) trials.push_back({7, repeat});
  Planner planner(*model, options, trials, /*captures=*/false);
  SlidingContext context(kTrials, model->options().n_transit);
  const std::vector<int32_t> states(2 * kTrials, 4);
  std::vector<double> counts(5);
  for (const int32_t action : planner.choose(context, states)) ++counts[static_cast<size_t>(action)];
  Batch query = testing::random_plain(1, 1);
  query.states.fill_(4);
  const at::Tensor policy = at::softmax(model->predict(query).actions[0] / 0.6, 0);
  for (int64_t action = 0; action < 5; ++action) {
    const auto p = policy[action].item<double>();
    EXPECT_NEAR(counts[static_cast<size_t>(action)] / kTrials, p, 4.5 * std::sqrt(p * (1 - p) / kTrials))
        << action;
  }
}

TEST(BeamSearch, ATrialsPlanDoesNotDependOnWhoIsBesideIt) {
  const auto model = random_model(8);
  const EvaluationOptions options = search_options(4, 2, Sampling::kSample);
  const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
  const std::vector<Trial> trials = {{40, 0}, {31, 0}, {49, 1}};
  const Rollouts rollouts = Rollouts::of(*model, family, options, /*captures=*/false);
  EXPECT_THAT(rollouts.place, ::testing::HasSubstr("4 beams planned 3 steps ahead"));
  const RunEpisode together = rollouts.begin(trials), alone = rollouts.begin(std::span(trials).subspan(1, 1));
  for (int episode = 0; episode < 3; ++episode) EXPECT_EQ(together()[1], alone()[0]);
}

TEST(BeamSearch, BrokenWeightsAreReported) {
  const auto model = random_model(9);
  for (const NamedTensor& parameter : model->parameters().named()) {
    if (parameter.name == "pred_dynamics.rewarded.bias")
      at::Tensor(parameter.tensor).fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const std::vector<Trial> trials = {{3, 0}};
  Planner planner(*model, search_options(4, 2, Sampling::kSample), trials, /*captures=*/false);
  EXPECT_THROW(planner.choose(SlidingContext(1, model->options().n_transit), std::vector<int32_t>{4, 4}),
               NonFiniteError);
}

/// Captured plans are those of eager steps; both earn in the same courses as on the CPU.
TEST(BeamSearch, OnAGpuPlansAreCapturedAndTheSame) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
  for (const char* name : {"pre_norm", "post_norm", "xland_transition"}) {
    SCOPED_TRACE(name);
    const auto model = random_model(4, name), on_cpu = random_model(4, name);
    const EvaluationOptions options = search_options(6, 3, Sampling::kSample);
    model->parameters().to(at::kCUDA);
    BeamSearch search(*model, options), expected(*on_cpu, options);
    const PlannedRows rows = random_rows(expected, {6, 0, 4, 2});
    EXPECT_TRUE(at::allclose(search(rows.to(at::kCUDA)).returns.cpu(), expected(rows).returns, 1e-3, 1e-4));

    const std::vector<Trial> trials = {{40, 0}, {31, 0}, {49, 1}};
    const TaskFamily family = TaskFamily::of(EnvironmentOptions{});
    const Rollouts captured = Rollouts::of(*model, family, options, /*captures=*/true);
    EXPECT_THAT(captured.place,
                ::testing::HasSubstr("the rollout kernel does not take this model, as it plans"));
    const RunEpisode replayed = captured.begin(trials);
    const RunEpisode eager = Rollouts::of(*model, family, options, /*captures=*/false).begin(trials);
    for (int episode = 0; episode < 3; ++episode) EXPECT_EQ(replayed(), eager());
  }
}

/// A room of 5 × 5 cells with one goal, which a learner crosses at random.
struct Room {
  static constexpr int64_t kSize = 5, kGoalX = 4, kGoalY = 3;

  /// Steps from cells and by actions that are drawn evenly.
  static Batch steps(int64_t rows, int64_t transitions) {
    Batch batch = testing::random_plain(rows, transitions, {.grid_size = kSize});
    const at::Tensor moves = at::tensor({1, 0, -1, 0, 0, 1, 0, -1, 0, 0}, at::kInt).view({5, 2});
    batch.next_states =
        (batch.states +
         moves.index_select(0, batch.actions.flatten().to(at::kLong)).view(batch.states.sizes()))
            .clamp(0, kSize - 1);
    batch.rewards = batch.next_states.eq(at::tensor({kGoalX, kGoalY}, at::kInt)).all(-1).to(at::kFloat);
    return batch;
  }
};

/// Adam on batches of the room.
void train(AlgorithmDistillation& model, int64_t steps) {
  const at::Tensor& flat = model.parameters().flat();
  at::Tensor mean = at::zeros_like(flat), square = at::zeros_like(flat);
  for (int64_t step = 1; step <= steps; ++step) {
    const auto loss = model.loss(Room::steps(32, model.options().n_transit), LossPositions::kAll, false);
    const at::Tensor gradient = testing::flat_gradient(model, loss.sum / static_cast<double>(loss.targets));
    const at::NoGradGuard no_grad;
    mean.mul_(0.9).add_(gradient, 0.1);
    square.mul_(0.99).addcmul_(gradient, gradient, 0.01);
    const double left = 1 - static_cast<double>(step) / static_cast<double>(steps);
    const double rate = 0.01 * left / (1 - std::pow(0.9, step));
    const at::Tensor scale = (square / (1 - std::pow(0.99, step))).sqrt().add_(1e-8);
    at::Tensor(flat).addcdiv_(mean, scale, -rate);
  }
}

TEST(BeamSearch, ANetworkThatKnowsItsRoomPlansItsWayWhereThePolicyWanders) {
  at::manual_seed(1);  // of the room's steps: with others one plan in some hundred loses steps
  EnvironmentOptions environment;
  environment.grid_size = Room::kSize;
  environment.horizon = 10;
  const TaskFamily family = TaskFamily::of(environment);
  ModelOptions options;
  options.tf_n_layer = 1;
  options.tf_n_head = 2;
  options.n_transit = 25;
  options.dynamics = true;
  const auto model = AlgorithmDistillation::create(options, {.grid_size = Room::kSize}, /*seed=*/1);
  train(*model, 200);

  // What it expects is what happens, in every cell.
  at::Tensor cells = at::arange(25, at::kInt);
  cells = at::stack({at::floor_divide(cells, 5), at::remainder(cells, 5)}, 1).to(at::kInt);
  Batch tried = Room::steps(25, 5);
  {
    const at::NoGradGuard no_grad;
    const auto outlook = model->imagination()->begin(tried, at::full({25}, 5, at::kLong), cells);
    for (int64_t cell = 0; cell < 25; ++cell) {
      for (int64_t action = 0; action < 5; ++action) {
        const auto x = std::clamp(cell / 5 + (action == 0) - (action == 1), int64_t{0}, int64_t{4});
        const auto y = std::clamp(cell % 5 + (action == 2) - (action == 3), int64_t{0}, int64_t{4});
        EXPECT_EQ(outlook.next_states[cell][action].item<int64_t>(), 5 * x + y) << cell << " " << action;
        EXPECT_NEAR(outlook.rewards[cell][action].item<double>(), x == Room::kGoalX && y == Room::kGoalY, 0.2)
            << cell << " " << action;
      }
    }
  }

  constexpr int64_t kTask = Room::kGoalX * Room::kSize + Room::kGoalY;
  const std::vector<Trial> trials = {{kTask, 0}, {kTask, 1}, {kTask, 2}, {kTask, 3}};
  EvaluationOptions evaluation;
  double of_policy = 0;
  const RunEpisode by_policy = Rollouts::of(*model, family, evaluation, false).begin(trials);
  evaluation.planning_horizon = 5;
  evaluation.beam_k = 16;
  evaluation.beam_draws = 5;
  const RunEpisode by_plan = Rollouts::of(*model, family, evaluation, false).begin(trials);
  constexpr int kEpisodes = 25, kFound = 20;  // by then each trial has come across the goal
  for (int episode = 0; episode < kEpisodes; ++episode) {
    const std::vector<float> earned = by_policy(), planned = by_plan();
    of_policy += std::accumulate(earned.begin(), earned.end(), 0.0) / (4 * kEpisodes);
    if (episode >= kFound) {
      EXPECT_THAT(planned, ::testing::Each(static_cast<float>(family.best_return(kTask)))) << episode;
    }
  }
  EXPECT_LT(of_policy, family.best_return(kTask) / 2);
}

}  // namespace
}  // namespace adtrain
