#include "evaluation/spaces/SpaceChooser.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "evaluation/ActionChooser.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

std::vector<Trial> trials_of(int64_t count) {
  std::vector<Trial> trials;
  for (int64_t i = 0; i < count; ++i) trials.push_back({i, i % 3});
  return trials;
}

const auto kSeed = fresh_seed();

TEST(SpaceChooser, ADiscreteActionIsAsTheGridsChooserHasItFromItsStartOn) {
  at::manual_seed(kSeed);
  Space space = Space::discrete(7);
  space.start = {3};
  const auto trials = trials_of(50);
  for (const Sampling sampling : {Sampling::kGreedy, Sampling::kSample}) {
    SpaceChooser chooser(space, sampling, kSeed, trials);
    ActionChooser expected(sampling, kSeed, trials);
    for (int step = 0; step < 4; ++step) {
      const at::Tensor logits = at::randn({50, 7});
      const at::Tensor chosen = chooser.choose(logits);
      const auto actions = expected.choose(logits);
      for (int64_t i = 0; i < 50; ++i)
        EXPECT_EQ(chosen[i][0].item<double>(), 3 + actions[static_cast<size_t>(i)]);
    }
  }
}

TEST(SpaceChooser, EachElementOfAMultiDiscreteHasLogitsOfItsOwn) {
  at::manual_seed(kSeed);
  SpaceChooser greedy(Space::multi_discrete({2}, {3, 5}), Sampling::kGreedy, kSeed, trials_of(20));
  const at::Tensor logits = at::randn({20, 8});
  const at::Tensor expected =
      at::stack({logits.narrow(1, 0, 3).argmax(1), logits.narrow(1, 3, 5).argmax(1)}, 1);
  EXPECT_TRUE(greedy.choose(logits).equal(expected.to(at::kDouble)));
  SpaceChooser drawing(Space::multi_discrete({2}, {3, 5}), Sampling::kSample, kSeed, trials_of(4000));
  const at::Tensor row = at::tensor({0.F, 1.F, -1.F, 0.F, 0.F, 2.F, 0.F, -50.F});
  const at::Tensor drawn = drawing.choose(row.expand({4000, 8}));
  for (int64_t value = 0; value < 3; ++value) {
    EXPECT_NEAR(drawn.select(1, 0).eq(value).to(at::kFloat).mean().item<double>(),
                row.narrow(0, 0, 3).softmax(0)[value].item<double>(), 0.05);
  }
  EXPECT_EQ(drawn.select(1, 1).max().item<double>(), 3) << "the last is as good as impossible";
}

TEST(SpaceChooser, ABoxIsTheNumberItselfOrAGaussiansMeanOrDraw) {
  at::manual_seed(kSeed);
  const Space space = Space::box({2}, {-1}, {1});
  const at::Tensor numbers = at::randn({30, 2}) * 4;
  for (const Sampling sampling : {Sampling::kGreedy, Sampling::kSample}) {
    EXPECT_TRUE(
        SpaceChooser(space, sampling, kSeed, trials_of(30)).choose(numbers).equal(numbers.to(at::kDouble)));
  }
  const at::Tensor gaussian = at::tensor({0.5F, -2.F, std::log(0.1F), std::log(3.F)}).expand({5000, 4});
  SpaceChooser greedy(space, Sampling::kGreedy, kSeed, trials_of(5000));
  EXPECT_TRUE(greedy.choose(gaussian).equal(gaussian.narrow(1, 0, 2).to(at::kDouble)));
  const at::Tensor drawn = SpaceChooser(space, Sampling::kSample, kSeed, trials_of(5000)).choose(gaussian);
  EXPECT_NEAR(drawn.select(1, 0).mean().item<double>(), 0.5, 0.01);
  EXPECT_NEAR(drawn.select(1, 0).std().item<double>(), 0.1, 0.01);
  EXPECT_NEAR(drawn.select(1, 1).mean().item<double>(), -2, 0.3);
  EXPECT_NEAR(drawn.select(1, 1).std().item<double>(), 3, 0.2);
}

TEST(SpaceChooser, RandomActionsAreUniformWithinTheSpace) {
  SpaceChooser box(Space::box({2}, {-1, 10}, {1, 14}), Sampling::kSample, kSeed, trials_of(5000));
  const at::Tensor numbers = box.draw_uniformly();
  EXPECT_NEAR(numbers.select(1, 0).mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(numbers.select(1, 1).mean().item<double>(), 12, 0.1);
  EXPECT_GE(numbers.select(1, 1).min().item<double>(), 10);
  EXPECT_LE(numbers.select(1, 1).max().item<double>(), 14);
  Space choice = Space::discrete(4);
  choice.start = {-1};
  SpaceChooser discrete(choice, Sampling::kSample, kSeed, trials_of(5000));
  EXPECT_NEAR(discrete.draw_uniformly().mean().item<double>(), 0.5, 0.1);
  Space whole = Space::box({1}, {-1}, {1}, ElementType::kInt8);
  const at::Tensor steps = SpaceChooser(whole, Sampling::kSample, kSeed, trials_of(3000)).draw_uniformly();
  for (const int value : {-1, 0, 1})
    EXPECT_NEAR(steps.eq(value).to(at::kFloat).mean().item<double>(), 1.0 / 3, 0.05) << value;
  const double infinity = std::numeric_limits<double>::infinity();
  const Space open = Space::box({3}, {-infinity, 2, -infinity}, {infinity, infinity, -3});
  const at::Tensor far = SpaceChooser(open, Sampling::kSample, kSeed, trials_of(5000)).draw_uniformly();
  EXPECT_NEAR(far.select(1, 0).mean().item<double>(), 0, 0.1);
  EXPECT_NEAR(far.select(1, 0).std().item<double>(), 1, 0.1);
  EXPECT_NEAR(far.select(1, 1).mean().item<double>(), 3, 0.1);
  EXPECT_GE(far.select(1, 1).min().item<double>(), 2);
  EXPECT_NEAR(far.select(1, 2).mean().item<double>(), -4, 0.1);
  EXPECT_LE(far.select(1, 2).max().item<double>(), -3);
}

TEST(SpaceChooser, WhatIsNotFiniteIsNoAction) {
  SpaceChooser chooser(Space::box({2}, {-1}, {1}), Sampling::kGreedy, kSeed, trials_of(3));
  at::Tensor numbers = at::zeros({3, 2});
  numbers[2][1] = std::nanf("");
  try {
    chooser.choose(numbers);
    FAIL() << "expected an error";
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(error.what(), HasSubstr("task 2"));
  }
}

}  // namespace
}  // namespace adtrain
