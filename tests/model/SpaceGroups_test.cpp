// Networks over groups of tasks, each group with spaces of its own.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/DropoutDraw.h"
#include "model/AnySpaceBatch.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using testing::flat_gradient;
using testing::random_rows;
using testing::relative_error;
using testing::small_model;
using testing::space_variant;
using testing::SpaceVariant;

constexpr int64_t kLength = 9;

/// A network of two groups, whose rows are of whole and of real numbers, beside that of each group alone with
/// the same values.
struct TwoGroups {
  explicit TwoGroups(TransformerBlock block) {
    alone = {space_variant("real", block, {testing::vector_of({5}), testing::vector_of({2}), {}}),
             space_variant("whole", block, {Space::discrete(9), Space::discrete(4), {}})};
    const testing::GroupedVariant both{"both", alone};
    model = AlgorithmDistillation::create(alone.front().options, both.shape(), 3);
    const at::NoGradGuard no_grad;
    for (const SpaceVariant& each : alone) {
      std::vector<NamedTensor> values;
      for (const auto& [name, tensor] : model->parameters().named()) {
        const std::string own = "groups." + each.name + ".";
        if (name.starts_with(own)) values.push_back({name.substr(own.size()), tensor});
        if (!name.starts_with("groups.")) values.push_back({name, tensor});
      }
      models.push_back(small_model(each));
      models.back()->parameters().load(values);  // throws where names or shapes differ
    }
  }
  Batch rows(size_t group, int64_t count) const {
    Batch batch = random_rows(alone[group], count, kLength);
    batch.group = static_cast<int64_t>(group);
    return batch;
  }
  std::vector<SpaceVariant> alone;
  std::unique_ptr<AlgorithmDistillation> model;
  std::vector<std::unique_ptr<AlgorithmDistillation>> models;
};

TEST(SpaceGroups, ALossOfTwoGroupsIsTheSumOfThoseOfEachGroupsNetwork) {
  for (const auto block : {TransformerBlock::kXland, TransformerBlock::kVintix, TransformerBlock::kPreNorm}) {
    TwoGroups groups(block);
    Batch batch;
    batch.parts = {groups.rows(0, 3), groups.rows(1, 2)};
    ASSERT_EQ(batch.size(), 5);
    const auto loss = groups.model->loss(batch, LossPositions::kAll, false);
    EXPECT_EQ(loss.targets, 5 * kLength);
    EXPECT_FALSE(loss.correct.defined()) << "no share of these targets says anything";
    const at::Tensor gradient = flat_gradient(*groups.model, loss.sum);
    at::Tensor sum = at::zeros_like(loss.sum);
    std::map<std::string, at::Tensor> expected;
    for (size_t group : {0, 1}) {
      AlgorithmDistillation& alone = *groups.models[group];
      Batch rows = batch.parts[group];
      rows.group = 0;
      const auto of_rows = alone.loss(rows, LossPositions::kAll, false);
      sum += of_rows.sum.detach();
      for (const auto& [name, view] : alone.parameters().views_of(flat_gradient(alone, of_rows.sum))) {
        const std::string own = "groups." + groups.alone[group].name + "." + name;
        at::Tensor& total = expected[name];
        expected[own] = view;
        total = total.defined() && total.sizes() == view.sizes() ? total + view : view;
      }
    }
    EXPECT_LT(relative_error(loss.sum.detach(), sum), 1e-5);
    // Of the largest: a bias of keys has a gradient of zero, of which rounding leaves next to nothing.
    const double largest = gradient.abs().max().item<double>();
    for (const auto& [name, view] : groups.model->parameters().views_of(gradient))
      EXPECT_LT((view - expected.at(name)).abs().max().item<double>(), 1e-5 * largest) << name;
  }
}

/// Rows lie group by group, in other places where the batch is divided.
TEST(SpaceGroups, DropoutOfGroupsFollowsTheRowOfTheGlobalBatch) {
  const auto rows_of = [](const Batch& batch, int64_t first, int64_t count) {
    Batch part = batch;
    for (at::Tensor* rows :
         {&part.states, &part.actions, &part.rewards, &part.before_action, &part.before_reward, &part.begins})
      *rows = rows->narrow(0, first, count);
    return part;
  };
  for (const auto block : {TransformerBlock::kXland, TransformerBlock::kVintix, TransformerBlock::kPreNorm}) {
    TwoGroups groups(block);
    const Batch real = groups.rows(0, 3), whole = groups.rows(1, 2);
    const auto loss = [&](const std::vector<Batch>& parts, const std::vector<int64_t>& rows) {
      Batch batch;
      batch.parts = parts;
      kernels::DropoutStream dropout = {at::full({1}, 17, at::kLong), at::tensor(rows, at::kLong)};
      const kernels::DropoutScope scope(dropout);
      return groups.model->loss(batch, LossPositions::kAll, /*training=*/true).sum.item<double>();
    };
    const double together = loss({real, whole}, {0, 2, 4, 1, 3});
    const double divided = loss({rows_of(real, 0, 1), rows_of(whole, 0, 1)}, {0, 1}) +
                           loss({rows_of(real, 1, 2), rows_of(whole, 1, 1)}, {2, 4, 3});
    EXPECT_NEAR(divided / together, 1, 1e-6);
    double most = 0;  // an untrained network's loss depends little on dropout, on some masks next to nothing
    for (const std::vector<int64_t>& rows : std::vector<std::vector<int64_t>>{{0, 1, 2, 3, 4},
                                                                              {1, 2, 3, 4, 0},
                                                                              {2, 3, 4, 0, 1},
                                                                              {3, 4, 0, 1, 2},
                                                                              {4, 0, 1, 2, 3},
                                                                              {4, 3, 2, 1, 0}}) {
      most = std::max(most, std::abs(loss({real, whole}, rows) / together - 1));
    }
    EXPECT_GT(most, 1e-5) << "the same rows in other places";
  }
}

TEST(SpaceGroups, ParametersOfAnAbsentGroupGetNoGradient) {
  TwoGroups groups(TransformerBlock::kVintix);
  Batch batch;
  batch.parts = {groups.rows(1, 2)};
  const auto loss = groups.model->loss(batch, LossPositions::kLast, false);
  const at::Tensor gradient = flat_gradient(*groups.model, loss.sum);
  for (const auto& [name, view] : groups.model->parameters().views_of(gradient)) {
    if (name.starts_with("groups.real.")) {
      EXPECT_EQ(view.abs().max().item<double>(), 0) << name;
    }
    if (name.starts_with("groups.whole.pred_action")) {
      EXPECT_GT(view.abs().max().item<double>(), 0) << name;
    }
  }
  EXPECT_EQ(groups.model->predict(groups.rows(0, 2)).actions.size(-1), 2);
  EXPECT_EQ(groups.model->predict(groups.rows(1, 2)).actions.size(-1), 4);
  EXPECT_THROW(groups.model->predict(batch), std::invalid_argument) << "parts are asked for one by one";
}

}  // namespace
}  // namespace adtrain
