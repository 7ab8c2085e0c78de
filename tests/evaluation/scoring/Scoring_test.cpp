#include "evaluation/scoring/Scoring.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "data/HistorySet.h"
#include "evaluation/scoring/GridScoredWindows.h"
#include "evaluation/scoring/ScoreFigures.h"
#include "launch/LaunchContext.h"
#include "model/AnySpaceBatch.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

std::unique_ptr<Communicator> alone() {
  return Communicator::create(LaunchContext{}, DistributedOptions{});
}

std::optional<ScoreTable> score_all(const Scoring& scoring, const SampleBatches& batches, int64_t threads,
                                    const std::function<bool()>& stop = {}) {
  return scoring.run({0, batches.batches()}, *alone(), threads, {}, stop);
}

ModelOptions small_model() {
  ModelOptions options;
  options.tf_n_embd = 16;
  options.tf_n_layer = 2;
  options.tf_n_head = 2;
  options.n_transit = 12;
  options.compress_interval = 4;
  return options;
}

std::vector<ModelOptions> every_kind_of_model() {
  std::vector<ModelOptions> kinds(5, small_model());
  kinds[1].transformer_block = TransformerBlock::kPostNorm;
  kinds[2].model = ModelKind::kGpt2;
  kinds[3].use_compressed_context = true;
  kinds[4].transformer_block = TransformerBlock::kXland;
  return kinds;
}

GridScoredWindows windows_for(const ModelOptions& options, const HistorySet& histories) {
  return {histories,
          {{8, "task 8", false}, {3, "task 3", true}},
          2,
          {.steps = histories.steps(),
           .horizon = 10,
           .length = options.n_transit,
           .region = options.compressed() ? options.compress_interval : 0},
          1};
}

/// float64, of the actions that `logits` and `taken` are of: the cross-entropy of each.
at::Tensor cross_entropies(const at::Tensor& logits, const at::Tensor& taken) {
  return -logits.to(at::kDouble).log_softmax(-1).gather(-1, taken.to(at::kLong).unsqueeze(-1)).squeeze(-1);
}

TEST(Scoring, EveryModelScoresAsPlainOperatorsRowByRow) {
  for (const ModelOptions& options : every_kind_of_model()) {
    SCOPED_TRACE(options.architecture());
    const auto model = AlgorithmDistillation::create(options, ModelShape{}, fresh_seed());
    const HistorySet histories = HistorySet::random(4, 30, {9, 5}, fresh_seed());
    const GridScoredWindows windows = windows_for(options, histories);
    const SampleBatches batches(windows.size(), 23, 5);
    const ScoreTable table = *score_all(Scoring(*model, windows, batches), batches, 2);
    ASSERT_EQ(table.size(), 23);
    for (int64_t row = 0; row < table.size(); ++row) {
      const SampleScore found = table[row];
      const std::vector<int64_t> window = {batches.window(row)};
      const Batch alone = windows.assemble(window);
      const at::Tensor logits = model->predict(alone).actions;
      const int64_t taken = static_cast<int64_t>(found.action.front());
      const Transition& step =
          histories.history((found.task == 8 ? 0 : 2) + found.stream)[static_cast<size_t>(found.position)];
      EXPECT_EQ(found.sample, window.front());
      EXPECT_EQ(taken, step.action);
      const double loss = cross_entropies(logits, at::tensor({taken}))[0].item<double>();
      EXPECT_NEAR(found.score.loss, loss, 1e-4);
      EXPECT_NEAR(found.score.probability, std::exp(-loss), 1e-4);
      const at::Tensor more = logits[0].gt(logits[0][taken]);
      EXPECT_EQ(found.score.rank, 1 + more.sum().item<int64_t>());
    }
  }
}

TEST(Scoring, In16BitsTheScoresOfEveryModelAreNearThoseIn32) {
  for (const ModelOptions& options : every_kind_of_model()) {
    const HistorySet histories = HistorySet::random(4, 30, {9, 5}, fresh_seed());
    const GridScoredWindows windows = windows_for(options, histories);
    const SampleBatches batches(windows.size(), 40, 8);
    const auto scores_in = [&](at::ScalarType type) {
      const auto model = AlgorithmDistillation::create(options, ModelShape{}, 7);
      model->parameters().to(at::kCPU, type);
      return *score_all(Scoring(*model, windows, batches), batches, 2);
    };
    const ScoreTable exact = scores_in(at::kFloat);
    for (const auto& [type, tolerance] : {std::pair(at::kBFloat16, 0.1), {at::kHalf, 0.015}}) {
      SCOPED_TRACE(options.architecture() + ", " + c10::toString(type));
      const ScoreTable rounded = scores_in(type);
      double largest = 0;
      for (int64_t row = 0; row < exact.size(); ++row)
        largest = std::max<double>(largest, std::abs(rounded[row].score.loss - exact[row].score.loss));
      EXPECT_LT(largest, tolerance);
      EXPECT_GT(largest, 0) << "computed in fp32";
    }
  }
}

class ScoringIn : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, ScoringIn, ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& tested) { return c10::toString(tested.param); });

TEST_P(ScoringIn, BitsDependOnNeitherThreadsNorShards) {
  ModelOptions options = small_model();
  options.tf_n_embd = 768;  // wide enough for a library to divide one product among threads
  options.tf_n_layer = 1;
  const auto model = AlgorithmDistillation::create(options, ModelShape{}, 5);
  model->parameters().to(at::kCPU, GetParam());
  const HistorySet histories = HistorySet::random(4, 20, {9, 5}, 6);
  const GridScoredWindows windows = windows_for(options, histories);
  const SampleBatches batches(windows.size(), std::nullopt, 16);
  const Scoring scoring(*model, windows, batches);
  const int before = at::get_num_threads();
  std::vector<std::string> found;
  for (const int64_t threads : {1, 2, 3}) {
    at::set_num_threads(static_cast<int>(threads));
    found.push_back(score_all(scoring, batches, threads)->bytes());
  }
  at::set_num_threads(before);
  std::string shards;
  for (int64_t index = 0; index < 3; ++index) {
    const NumberSpan part = NumberSpan{0, batches.batches()}.part(index, 3);
    shards += scoring.run(part, *alone(), 1, {}, {})->bytes();
  }
  for (const std::string& bytes : {found[1], found[2], shards}) EXPECT_TRUE(bytes == found[0]);
}

/// Rows of a random batch of several groups of spaces, as windows.
class RandomWindows final : public ScoredWindows {
 public:
  RandomWindows(const std::vector<testing::SpaceVariant>& groups, int64_t rows)
      : ScoredWindows({{0, "task", false}}), rows_(rows) {
    for (const testing::SpaceVariant& variant : groups) {
      batches_.push_back(testing::random_rows(variant, rows, variant.options.n_transit));
      batches_.back().group = std::ssize(batches_) - 1;
    }
  }
  int64_t size() const override { return rows_ * std::ssize(batches_); }
  /// Groups take turns.
  Place place(int64_t window) const override {
    return {0, 0, window, static_cast<size_t>(window) % batches_.size()};
  }
  Batch assemble(std::span<const int64_t> windows) const override {
    const size_t group = place(windows.front()).group;
    std::vector<int64_t> rows;
    for (const int64_t window : windows) rows.push_back(window / std::ssize(batches_));
    const at::Tensor index = at::tensor(rows);
    Batch batch = batches_[group];
    for (at::Tensor* const part :
         {&batch.states, &batch.actions, &batch.rewards, &batch.before_action, &batch.before_reward,
          &batch.begins, &batch.state_mean, &batch.state_deviation}) {
      if (part->defined()) *part = part->index_select(0, index);
    }
    return batch;
  }
  const std::string& digest() const override { return digest_; }
  std::string description() const override { return "random"; }

 private:
  int64_t rows_;
  std::vector<Batch> batches_;
  std::string digest_ = "none";
};

/// The mean loss of a table is that of AlgorithmDistillation::loss, which other code computes.
void expect_the_models_own_loss(AlgorithmDistillation& model, const ScoredWindows& windows, size_t groups) {
  const SampleBatches batches(windows.size(), std::nullopt, 6);
  const ScoreTable table = *score_all(Scoring(model, windows, batches), batches, 1);
  ASSERT_EQ(table.size(), windows.size());
  double sum = 0, correct = 0;
  for (size_t group = 0; group < groups; ++group) {
    std::vector<int64_t> of_group;
    for (auto window = static_cast<int64_t>(group); window < windows.size();
         window += static_cast<int64_t>(groups))
      of_group.push_back(window);
    const auto loss = model.loss(windows.assemble(of_group), LossPositions::kLast, /*training=*/false);
    sum += loss.sum.item<double>();
    if (loss.correct.defined()) correct += loss.correct.item<double>();
  }
  const ScoreFigures figures = ScoreFigures::of(table, windows.tasks());
  const auto samples = static_cast<double>(table.size());
  EXPECT_NEAR(*figures.all.loss, sum / samples, 2e-5 * std::max(1.0, std::abs(sum / samples)));
  if (groups > 1 || !figures.all.accuracy) return;
  EXPECT_NEAR(*figures.all.accuracy * samples, correct, 1e-6);
}

TEST(Scoring, TasksOfAnySpaceHaveTheModelsOwnLoss) {
  for (testing::SpaceVariant variant : testing::space_variants()) {
    SCOPED_TRACE(variant.name);
    variant.options.label_smoothing = 0;
    expect_the_models_own_loss(*testing::small_model(variant), RandomWindows({variant}, 20), 1);
  }
  for (testing::GroupedVariant variant : testing::grouped_variants()) {
    SCOPED_TRACE(variant.name);
    variant.groups.front().options.label_smoothing = 0;
    const auto model = AlgorithmDistillation::create(variant.groups.front().options, variant.shape(), 3);
    expect_the_models_own_loss(*model, RandomWindows(variant.groups, 10), variant.groups.size());
  }
}

TEST(Scoring, LogicalDevicesGiveTheSameBits) {
  const testing::GroupedVariant variant = testing::grouped_variants().front();
  ModelOptions options = variant.groups.front().options;
  options.tf_n_layer = 4;
  const auto whole = AlgorithmDistillation::create(options, variant.shape(), 3);
  const auto model = AlgorithmDistillation::create(options, variant.shape(), 3);
  const RandomWindows windows(variant.groups, 20);
  const SampleBatches batches(windows.size(), std::nullopt, 3);
  const std::string expected = score_all(Scoring(*whole, windows, batches), batches, 2)->bytes();
  const auto modules = modules_of(*model, at::kFloat);
  const MemoryLimits limits = {.gpus = {{0, 1 << 30}, {1, 1 << 30}}, .cpu = 1 << 30, .from_user = true};
  const DeviceMap map = DeviceMap::given("{embeddings: 0, blocks: 0, blocks.2: 1, blocks.3: cpu, head: cpu}",
                                         modules, limits, {});
  PlacedNetwork placed(*model, modules, map, {2, at::Device(at::kCPU)}, at::kFloat);
  const Scoring scoring(*model, windows, batches, &placed);
  EXPECT_TRUE(score_all(scoring, batches, 2)->bytes() == expected);
  EXPECT_TRUE(scoring.score(1).bytes() == Scoring(*whole, windows, batches).score(1).bytes());
  EXPECT_FALSE(score_all(scoring, batches, 2, [] { return true; }));
}

TEST(Scoring, StopsOnRequest) {
  const auto model = AlgorithmDistillation::create(small_model(), ModelShape{}, 5);
  const HistorySet histories = HistorySet::random(4, 200, {9, 5}, 6);
  const GridScoredWindows windows = windows_for(small_model(), histories);
  const SampleBatches batches(windows.size(), std::nullopt, 1);
  EXPECT_FALSE(score_all(Scoring(*model, windows, batches), batches, 2, [] { return true; }));
}

TEST(ScoreFigures, AreMeansOfAllAndOfEachTask) {
  ScoreTable table({1, false});
  for (int64_t row = 0; row < 6; ++row) {
    const bool first = row % 2 == 0;
    table.append(
        {row, row < 4 ? 8 : 3, 0, row, {0}, {first ? 0.75F : 0.25F, static_cast<float>(row), first ? 1 : 2}});
  }
  const ScoreFigures figures = ScoreFigures::of(table, {{8, "a", false}, {5, "none", true}, {3, "b", true}});
  EXPECT_EQ(figures.all.samples, 6);
  EXPECT_EQ(figures.all.loss, 2.5);
  EXPECT_EQ(*figures.all.accuracy, 0.5);
  EXPECT_EQ(*figures.all.probability, 0.5);
  EXPECT_EQ(figures.held_out->loss, 1.5);
  EXPECT_EQ(figures.trained->loss, 4.5);
  ASSERT_EQ(figures.tasks.size(), 2U);
  EXPECT_EQ(figures.tasks[1].first.name, "b");
  EXPECT_EQ(figures.tasks[1].second.samples, 2);
  const auto json = figures.to_json();
  EXPECT_EQ(json["tasks"][0]["task"], 8);
  EXPECT_EQ(json["tasks"][0]["loss"], 1.5);
  EXPECT_EQ(figures.table(1).size(), 6U) << "a head, a task, how many more, two sides, all";
}

}  // namespace
}  // namespace adtrain
