// The learnt model of the environment: its loss against a plain reference, and what is imagined with kept
// histories against passes over whole sequences.

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/DynamicsHead.h"
#include "model/RandomBatch.h"
#include "model/SumOverPrefixes.h"

namespace adtrain {
namespace {

using testing::expect_sums_over_prefixes;
using testing::prefix;
using testing::random_plain;
using testing::relative_error;
using testing::small_model;
using testing::Variant;
using testing::variant;

constexpr int64_t kLength = 9;  // of small models' windows

/// The networks that may have one.
std::vector<Variant> variants_with_dynamics(double strength = 0.7) {
  std::vector<Variant> variants;
  for (const char* name : {"pre_norm", "post_norm", "pre_norm_pieces", "xland_transition", "vintix_rotary"}) {
    variants.push_back(variant(name));
    variants.back().options.dynamics = true;
    variants.back().options.dynamics_strength = strength;
  }
  return variants;
}

TEST(Dynamics, ParametersOfNetworksWithoutItKeepNamesOrderAndBits) {
  for (const Variant& each : variants_with_dynamics()) {
    SCOPED_TRACE(each.name);
    Variant without = each;
    without.options.dynamics = false;
    const auto found = small_model(each), expected = small_model(without);
    const auto more = found->parameters().named(), fewer = expected->parameters().named();
    ASSERT_EQ(more.size(), fewer.size() + 7);
    for (size_t i = 0; i < more.size(); ++i) {
      EXPECT_EQ(more[i].name.starts_with("pred_dynamics."), i >= fewer.size());
      if (i >= fewer.size()) continue;
      EXPECT_EQ(more[i].name, fewer[i].name);
      EXPECT_TRUE(at::equal(more[i].tensor, fewer[i].tensor)) << more[i].name;
    }
    const Batch batch = random_plain(3, kLength);
    EXPECT_TRUE(at::equal(found->predict(batch).actions, expected->predict(batch).actions));
  }
}

/// What DynamicsHead is said to compute, of one query, in double.
struct PlainHead {
  std::vector<at::Tensor> p;  // hidden weight and bias, action, rewarded weight and bias, next state's

  at::Tensor log_probabilities(const at::Tensor& h, int64_t action, size_t weight) const {
    const at::Tensor sum = at::mv(p[0], h) + p[1] + p[2][action];
    const at::Tensor z = 0.5 * sum * (1 + at::erf(sum / std::sqrt(2.0)));
    return at::log_softmax(at::mv(p[weight], z) + p[weight + 1], 0);
  }
};

TEST(Dynamics, LossAndGradientsOfTheHeadAreThoseOfAPlainReference) {
  ParameterFactory factory(at::randint(1 << 30, {1}, at::kLong).item<int64_t>());
  ModelOptions options;
  options.tf_n_embd = 6;
  const ModelShape shape = {.grid_size = 3, .num_actions = 4};
  const DynamicsHead head(factory, options, shape);
  std::vector<NamedTensor> made = factory.take();
  PlainHead plain;
  for (NamedTensor& parameter : made) {
    plain.p.push_back(parameter.tensor.detach().to(at::kDouble).requires_grad_());
  }
  const at::Tensor queries = at::randn({2, 5, 6}).requires_grad_();
  const at::Tensor doubles = queries.detach().to(at::kDouble).requires_grad_();
  const at::Tensor actions = at::randint(4, {2, 5}, at::kLong);
  const at::Tensor rewarded = at::randint(2, {2, 5}, at::kLong), next = at::randint(9, {2, 5}, at::kLong);
  at::Tensor expected = at::zeros({}, at::kDouble);
  const auto all = head.of_all_actions(queries.detach());
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t action = 0; action < 4; ++action) {
        EXPECT_LT(relative_error(at::log_softmax(all.next_states[row][i][action], 0).to(at::kDouble),
                                 plain.log_probabilities(doubles.detach()[row][i], action, 5)),
                  1e-5);
      }
      const auto action = actions[row][i].item<int64_t>();
      expected = expected -
                 plain.log_probabilities(doubles[row][i], action, 3)[rewarded[row][i].item<int64_t>()] -
                 plain.log_probabilities(doubles[row][i], action, 5)[next[row][i].item<int64_t>()];
    }
  }
  const at::Tensor loss = head.loss(queries, {actions, rewarded, next});
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5 * expected.item<double>());
  loss.backward();
  expected.backward();
  EXPECT_LT(relative_error(queries.grad().to(at::kDouble), doubles.grad()), 1e-5);
  // Of the largest gradient: that of two biases is a sum over ten queries, which may nearly cancel out.
  double largest = 0;
  for (const at::Tensor& parameter : plain.p)
    largest = std::max(largest, parameter.grad().abs().max().item<double>());
  for (size_t i = 0; i < made.size(); ++i) {
    const at::Tensor error = made[i].tensor.grad().to(at::kDouble) - plain.p[i].grad();
    EXPECT_LT(error.abs().max().item<double>(), 1e-5 * largest) << made[i].name;
  }
}

TEST(Dynamics, LossAtAllPositionsIsTheSumOverPrefixesWithItsGradients) {
  for (const Variant& each : variants_with_dynamics()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const Batch batch = random_plain(2, kLength);
    expect_sums_over_prefixes(*model, batch);
    // Actions that are no targets lead somewhere all the same.
    Variant policy = each;
    policy.options.dynamics_strength = 0;
    const auto of_actions = small_model(policy);
    Batch fewer = batch;
    fewer.current = at::tensor({4, 7}, at::kInt);
    const auto difference = [&](AlgorithmDistillation& network) {
      return network.loss(batch, LossPositions::kAll, false).sum.item<double>() -
             network.loss(fewer, LossPositions::kAll, false).sum.item<double>();
    };
    EXPECT_NEAR(difference(*model), difference(*of_actions), 1e-3);
    EXPECT_GT(difference(*model), 1);
  }
}

/// A batch whose rows are these lengths' ends of `batch`, at the end of `columns`, random before.
Batch at_the_end(const Batch& batch, const std::vector<int64_t>& lengths, int64_t columns) {
  Batch history = random_plain(batch.size(), columns);
  for (int64_t row = 0; row < batch.size(); ++row) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    const auto copy = [&](at::Tensor& to, const at::Tensor& from) {
      to[row].narrow(0, columns - length, length).copy_(from[row].narrow(0, 0, length));
    };
    copy(history.states, batch.states);
    copy(history.actions, batch.actions);
    copy(history.rewards, batch.rewards);
    copy(history.next_states, batch.next_states);
  }
  return history;
}

/// Row `row` of `batch` with its first `length` transitions, and one more column for a query.
Batch row_of(const Batch& batch, int64_t row, int64_t length) {
  return prefix(testing::part(batch, 0, row, 1), length + 1);
}

TEST(Dynamics, WhatIsExpectedOfTheTakenActionIsWhatTheLossSaysOfIt) {
  for (const Variant& each : variants_with_dynamics()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each, /*seed=*/11);
    constexpr int64_t kHistory = 5;
    const Batch batch = random_plain(1, kHistory + 1);
    const at::NoGradGuard no_grad;
    const auto imagination = model->imagination();
    ASSERT_NE(imagination, nullptr);
    const auto outlook = imagination->begin(prefix(batch, kHistory), at::tensor({kHistory}, at::kLong),
                                            batch.states.select(1, kHistory));
    const auto action = batch.actions[0][kHistory].item<int64_t>();
    const auto loss_if = [&](const at::Tensor& reward, const at::Tensor& next_state) {
      Batch other = batch;
      other.rewards = batch.rewards.clone();
      other.next_states = batch.next_states.clone();
      other.rewards[0][kHistory] = reward;
      other.next_states[0][kHistory] = next_state;
      return model->loss(other, LossPositions::kLast, false).sum.item<double>();
    };
    const at::Tensor state = at::tensor({0, 0}, at::kInt), one = at::ones({}), zero = at::zeros({});
    const auto p = outlook.rewards[0][action].item<double>();
    EXPECT_NEAR(loss_if(one, state) - loss_if(zero, state), 0.7 * (std::log(1 - p) - std::log(p)), 1e-4);
    const auto expected = outlook.next_states[0][action].item<int>();
    const double least = loss_if(one, at::tensor({expected / 9, expected % 9}, at::kInt));
    for (int other = 0; other < 81; ++other)
      EXPECT_LE(least, loss_if(one, at::tensor({other / 9, other % 9}, at::kInt)) + 1e-5);
  }
}

TEST(Dynamics, WhatIsImaginedWithKeptHistoriesIsWhatWholeSequencesSay) {
  for (const Variant& each : variants_with_dynamics()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each, /*seed=*/3);
    const at::NoGradGuard no_grad;
    constexpr int64_t kHistory = 5, kRows = 3, kBeams = 2;
    const std::vector<int64_t> lengths = {kHistory, 0, 3};
    Batch rows = random_plain(kRows, kLength);
    const at::Tensor states = at::randint(9, {kRows, 2}, at::kInt);
    const auto imagination = model->imagination();
    auto outlook =
        imagination->begin(at_the_end(rows, lengths, kHistory), at::tensor(lengths, at::kLong), states);

    // Sequences of beams, by environment and beam, as batches of one row.
    struct Course {
      Batch sequence;
      int64_t length;
    };
    std::vector<Course> courses;
    for (int64_t row = 0; row < kRows; ++row) {
      Course course = {row_of(rows, row, kLength - 1), lengths[static_cast<size_t>(row)]};
      course.sequence.states[0][course.length] = states[row];
      courses.push_back(course);
    }
    const auto check = [&](const std::string& when) {
      for (size_t i = 0; i < courses.size(); ++i) {
        const auto expected = model->predict(prefix(courses[i].sequence, courses[i].length + 1)).actions[0];
        EXPECT_LT(relative_error(outlook.actions[static_cast<int64_t>(i)], expected), 1e-5)
            << when << ", course " << i;
      }
    };
    check("before anything is imagined");
    for (int depth = 0; depth < 3; ++depth) {
      const int64_t beams = depth == 0 ? 1 : kBeams;
      std::vector<int64_t> from, actions;
      std::vector<Course> next;
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t beam = 0; beam < kBeams; ++beam) {
          const int64_t parent = row * beams + at::randint(beams, {1}, at::kLong).item<int64_t>();
          const auto action = at::randint(5, {1}, at::kLong).item<int64_t>();
          from.push_back(parent);
          actions.push_back(action);
          const Course& old = courses[static_cast<size_t>(parent)];
          Course course = {prefix(old.sequence, kLength), old.length + 1};
          for (at::Tensor* tensor : {&course.sequence.states, &course.sequence.actions,
                                     &course.sequence.rewards, &course.sequence.next_states})
            *tensor = tensor->clone();
          const auto state = outlook.next_states[parent][action].item<int>();
          const at::Tensor cell = at::tensor({state / 9, state % 9}, at::kInt);
          course.sequence.actions[0][old.length] = action;
          course.sequence.rewards[0][old.length] =
              outlook.rewards[parent][action].item<double>() > 0.5 ? 1 : 0;
          course.sequence.next_states[0][old.length] = cell;
          course.sequence.states[0][course.length] = cell;
          next.push_back(course);
        }
      }
      outlook = imagination->go_on(at::tensor(from, at::kLong), at::tensor(actions, at::kLong));
      courses = next;
      check("at depth " + std::to_string(depth + 1));
    }
  }
}

TEST(Dynamics, NetworksWithoutItImagineNothing) {
  EXPECT_EQ(small_model(variant("pre_norm"))->imagination(), nullptr);
}

}  // namespace
}  // namespace adtrain
