#include "model/RollingKeys.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/FusedDevice.h"
#include "model/AnySpaceBatch.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using namespace adtrain::testing;

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).norm() / expected.norm()).item<double>();
}

TEST(RollingKeys, ThePlacesSayHowOldTheirTokensAre) {
  RollingPlaces places(3);
  const std::vector<std::vector<int64_t>> expected = {{0},       {1, 0},    {2, 1, 0},
                                                      {0, 2, 1}, {1, 0, 2}, {2, 1, 0}};
  for (const std::vector<int64_t>& ages : expected) {
    places.add(1, 0, at::kCPU);
    EXPECT_TRUE(places.ages(0, at::kCPU).equal(at::tensor(ages)));
    EXPECT_EQ(places.counts().item<int64_t>(), places.position(0) + 1);
  }
  EXPECT_EQ(places.position(0), 5);
  EXPECT_EQ(places.place(0), 2);
}

/// A transition takes the place of the query before it, and the new query the next one.
TEST(RollingKeys, WhatNoLaterStepReadsMakesRoom) {
  RollingPlaces places(3);
  places.add(1, 1, at::kCPU);
  EXPECT_EQ(places.position(0), 0);
  for (int64_t transitions = 1; transitions < 7; ++transitions) {
    places.add(2, 1, at::kCPU);
    EXPECT_EQ(places.position(0), transitions - 1);
    EXPECT_EQ(places.position(1), transitions);
    EXPECT_EQ(places.place(1), transitions % 3);
    EXPECT_EQ(places.taken(0), std::min<int64_t>(transitions, 3));
    EXPECT_EQ(places.taken(1), std::min<int64_t>(transitions + 1, 3));
    EXPECT_TRUE(places.counts().equal(at::tensor({transitions, transitions + 1})));
  }
}

/// Until a window is full, rolling rows are those of predict(): every encoder, head and preset, every
/// position that can be counted.
TEST(RollingKeys, AFullWindowPredictsAsWithoutThem) {
  std::vector<SpaceVariant> variants = space_variants();
  for (const PositionKind positions :
       {PositionKind::kRotary, PositionKind::kAlibi, PositionKind::kNone, PositionKind::kLearned}) {
    variants.push_back(
        space_variant("positions", TransformerBlock::kVintix, {vector_of({4}), vector_of({2}), {}}));
    variants.back().options.pieces.positions = positions;
  }
  for (SpaceVariant& each : variants) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const int64_t window_size = each.options.n_transit;
    const Batch batch = random_rows(each, 3, window_size);
    const auto rolling = model->rolling();
    ASSERT_TRUE(rolling) << model->why_not_rolling();
    for (int64_t step = 0; step < window_size; ++step) {
      const at::Tensor found = rolling(window(batch, step, 1)).actions;
      EXPECT_LT(error_of(found, model->predict(window(batch, 0, step + 1)).actions), 1e-5) << "step " << step;
    }
  }
}

/// The keys of a single block depend on their own token alone, so that the window slides as it does in
/// predict().
TEST(RollingKeys, TheWindowOfOneBlockSlides) {
  for (const PositionKind positions : {PositionKind::kRotary, PositionKind::kAlibi, PositionKind::kNone}) {
    SpaceVariant each = space_variant("one block", TransformerBlock::kXland, xland_spaces());
    each.options.tf_n_layer = 1;
    each.options.pieces.positions = positions;
    const auto model = small_model(each);
    const int64_t size = each.options.n_transit;
    const Batch batch = random_rows(each, 2, 4 * size);
    const auto rolling = model->rolling();
    for (int64_t step = 0; step < 4 * size; ++step) {
      const at::Tensor found = rolling(window(batch, step, 1)).actions;
      const int64_t first = std::max<int64_t>(0, step + 1 - size);
      const at::Tensor expected = model->predict(window(batch, first, step + 1 - first)).actions;
      EXPECT_LT(error_of(found, expected), 1e-5) << "step " << step;
    }
  }
}

TEST(RollingKeys, DeeperBlocksRememberWhatTheWindowHasLost) {
  const SpaceVariant each = space_variant("two blocks", TransformerBlock::kXland, xland_spaces());
  const auto model = small_model(each);
  const int64_t size = each.options.n_transit;
  const Batch batch = random_rows(each, 2, 2 * size);
  const auto rolling = model->rolling(), other = model->rolling();
  Batch changed = batch;
  changed.states = batch.states.clone();
  changed.states.select(1, size - 1).copy_(random_of(each.spaces.observation, {2}));
  at::Tensor found, of_other;
  for (int64_t step = 0; step < 2 * size; ++step) {
    found = rolling(window(batch, step, 1)).actions;
    of_other = other(window(changed, step, 1)).actions;
  }
  EXPECT_GT(error_of(found, of_other), 0) << "the changed step has left the window, not the keys above it";
  EXPECT_EQ(error_of(model->predict(window(batch, size, size)).actions,
                     model->predict(window(changed, size, size)).actions),
            0);
}

/// As in replays of captured work: the host's numbers stay those of the first token.
TEST(RollingKeys, OurAttentionCountsOnTheDeviceAlone) {
  const auto device = fused_device();
  if (!device) GTEST_SKIP() << "no GPU here";
  constexpr int64_t kWindow = 3;
  RollingPlaces replayed(kWindow), eager(kWindow);
  RollingKeys of_replayed, of_eager;
  replayed.add(1, 0, device->device);
  for (int step = 0; step < 3 * kWindow; ++step) {
    if (step > 0) replayed.counts().add_(1);
    eager.add(1, 0, device->device);
    const at::Tensor qkv = at::randn({3, 2, 2, 1, 32}, at::device(device->device).dtype(at::kBFloat16));
    const auto attended = [&](RollingKeys& keys, const RollingPlaces& places) {
      return keys.attend(
          qkv[0], qkv[1], qkv[2],
          {.places = places, .rotary = {}, .penalties = {}, .by_kernel = kernels::DistancePenalty::kAlibi});
    };
    EXPECT_TRUE(at::equal(attended(of_replayed, replayed), attended(of_eager, eager))) << "step " << step;
  }
  EXPECT_EQ(replayed.position(0), 0);
}

/// In 16 bit our kernels are as near to fp32 as plain operators are. `predictions(type, kernels, by_kernel)`:
/// of the same network and rows; `by_kernel`: whether our kernels are to run.
template <class Predictions>
void expect_ours_to_be_as_near(const Predictions& predictions) {
  const at::Tensor exact = predictions(at::kFloat, FusedKernels::kAuto, false);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    const double plain = error_of(predictions(type, FusedKernels::kOff, false), exact);
    EXPECT_LT(error_of(predictions(type, FusedKernels::kAuto, true), exact), 1.5 * plain);
    EXPECT_LT(plain, type == at::kHalf ? 1e-2 : 5e-2);
  }
}

/// On a GPU or emulated: a window that fills, is full and wraps, beside plain operators in the same type and
/// in fp32.
TEST(RollingKeys, OurAttentionOverThemIsThatOfThePlainOperators) {
  const auto device = fused_device();
  if (!device) GTEST_SKIP() << "no GPU here";
  for (const auto& [block, positions] : {std::pair{TransformerBlock::kXland, PositionKind::kAlibi},
                                         {TransformerBlock::kVintix, PositionKind::kAlibi},
                                         {TransformerBlock::kVintix, PositionKind::kRotary},
                                         {TransformerBlock::kPreNorm, PositionKind::kRotary},
                                         {TransformerBlock::kXland, PositionKind::kNone}}) {
    SpaceVariant each = space_variant("", block, {vector_of({4}), vector_of({2}), {}});
    each.options.tf_n_embd = 64;
    each.options.pieces.positions = positions;
    each.options.n_transit = 6;
    const int64_t steps = 15;
    const Batch batch = random_rows(each, 2, steps);
    const auto predictions = [&](at::ScalarType type, FusedKernels kernels, bool by_kernel) {
      SpaceVariant of_kernels = each;
      of_kernels.options.fused_kernels = kernels;
      const auto model = small_model(of_kernels);
      model->parameters().to(device->device, type);
      EXPECT_EQ(model->rolling_repeats(), by_kernel);
      const auto rolling = model->rolling();
      std::vector<at::Tensor> all;
      for (int64_t step = 0; step < steps; ++step)
        all.push_back(rolling(window(batch, step, 1).to(device->device)).actions.cpu());
      return at::stack(all);
    };
    expect_ours_to_be_as_near(predictions);
  }
}

/// Networks over grids, and chosen pieces with every layout and kind of positions.
std::vector<Variant> grids() {
  std::vector<Variant> all = plain_variants();
  for (const TokenLayout layout : {TokenLayout::kTransition, TokenLayout::kPrevious}) {
    for (const PositionKind positions :
         {PositionKind::kRotary, PositionKind::kAlibi, PositionKind::kNone, PositionKind::kLearned}) {
      all.push_back(variant("xland"));
      all.back().name = layout == TokenLayout::kPrevious ? "one token a step" : "transitions and queries";
      all.back().options.token_layout = layout;
      all.back().options.pieces.positions = positions;
    }
  }
  return all;
}

/// The rows that a step at `query` is asked with.
Batch step_of(const Batch& rows, int64_t query) {
  return query == 0 ? part(rows, 1, 0, 1) : part(rows, 1, query - 1, 2);
}

TEST(RollingKeys, AFullWindowOfAGridPredictsAsWithoutThem) {
  for (const Variant& each : grids()) {
    SCOPED_TRACE(each.name);
    const auto model = small_model(each);
    const int64_t size = each.options.n_transit;
    const Batch rows = random_plain(3, size);
    const auto rolling = model->rolling();
    ASSERT_TRUE(rolling) << model->why_not_rolling();
    for (int64_t step = 0; step < size; ++step) {
      const at::Tensor found = rolling(step_of(rows, step)).actions;
      EXPECT_LT(error_of(found, model->predict(prefix(rows, step + 1)).actions), 1e-5) << "step " << step;
    }
  }
}

TEST(RollingKeys, TheWindowOfOneBlockOverTransitionsSlides) {
  int tried = 0;
  for (Variant& each : grids()) {
    if (each.options.composed() && each.options.layout() == TokenLayout::kPrevious) continue;
    each.options.tf_n_layer = 1;
    const auto model = small_model(each);
    if (!model->rolling_slides()) continue;
    ++tried;
    SCOPED_TRACE(each.name);
    const int64_t size = each.options.n_transit;
    const Batch rows = random_plain(2, 3 * size);
    const auto rolling = model->rolling();
    for (int64_t step = 0; step < 3 * size; ++step) {
      const at::Tensor found = rolling(step_of(rows, step)).actions;
      const int64_t first = std::max<int64_t>(0, step + 1 - size);
      const at::Tensor expected = model->predict(part(rows, 1, first, step + 1 - first)).actions;
      EXPECT_LT(error_of(found, expected), 1e-5) << "step " << step;
    }
  }
  EXPECT_GE(tried, 4) << "pre-norm blocks, and chosen pieces with three kinds of positions at least";
}

/// On a GPU or emulated: beside plain operators in the same type and in fp32, as far as rows may grow.
TEST(RollingKeys, OurAttentionOfGridsIsThatOfThePlainOperators) {
  const auto device = fused_device();
  if (!device) GTEST_SKIP() << "no GPU here";
  for (const Variant& each : grids()) {
    SCOPED_TRACE(each.name);
    ModelOptions options = each.options;
    options.tf_n_embd = 64;
    options.tf_n_head = 2;
    options.n_transit = 5;
    const Batch rows = random_plain(2, 12);
    const auto predictions = [&](at::ScalarType type, FusedKernels kernels, bool by_kernel) {
      ModelOptions of_kernels = options;
      of_kernels.fused_kernels = kernels;
      const auto model = AlgorithmDistillation::create(of_kernels, ModelShape{}, 7);
      model->parameters().to(device->device, type);
      EXPECT_EQ(model->rolling_repeats(), by_kernel);
      const auto rolling = model->rolling();
      std::vector<at::Tensor> all;
      for (int64_t step = 0; step < (model->rolling_slides() ? 12 : options.n_transit); ++step)
        all.push_back(rolling(step_of(rows, step).to(device->device)).actions.cpu());
      return at::stack(all);
    };
    expect_ours_to_be_as_near(predictions);
  }
}

TEST(RollingKeys, WhoCannotSaysWhy) {
  SpaceVariant learned = space_variant("learned", TransformerBlock::kXland, xland_spaces());
  learned.options.pieces.positions = PositionKind::kLearned;
  EXPECT_FALSE(small_model(learned)->rolling_slides());
  for (const std::string name : {"pre_norm", "post_norm", "gpt2", "compressed"}) {
    const auto model = small_model(variant(name));
    EXPECT_EQ(model->rolling_slides(), name == "pre_norm") << name;
    EXPECT_EQ(model->rolling() == nullptr, name == "compressed") << name;
    EXPECT_EQ(model->why_not_rolling().empty(), name != "compressed") << name;
  }
}

}  // namespace
}  // namespace adtrain
