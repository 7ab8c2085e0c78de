#include "model/RollingKeys.h"

#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "kernels/FusedDevice.h"
#include "model/AnySpaceBatch.h"

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
    places.add(at::kCPU);
    EXPECT_TRUE(places.ages(at::kCPU).equal(at::tensor(ages)));
    EXPECT_EQ(places.count().item<int64_t>(), places.position() + 1);
  }
  EXPECT_EQ(places.position(), 5);
  EXPECT_EQ(places.newest(), 2);
}

/// Until a window is full, rolling rows are those of predict(): every encoder, head and preset, every
/// position that can be counted.
TEST(RollingKeys, AFullWindowPredictsAsWithoutThem) {
  at::manual_seed(static_cast<uint64_t>(getpid()));
  std::vector<SpaceVariant> variants = space_variants();
  for (const PositionKind positions : {PositionKind::kRotary, PositionKind::kAlibi, PositionKind::kNone}) {
    variants.push_back(
        space_variant("positions", TransformerBlock::kVintix, {vector_of({4}), vector_of({2}), {}}));
    variants.back().options.pieces.positions = positions;
  }
  for (SpaceVariant& each : variants) {
    SCOPED_TRACE(each.name);
    if (each.options.block_pieces().positions == PositionKind::kLearned) continue;
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
  at::manual_seed(static_cast<uint64_t>(getpid()));
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
  at::manual_seed(static_cast<uint64_t>(getpid()));
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
  at::manual_seed(static_cast<uint64_t>(getpid()));
  constexpr int64_t kWindow = 3;
  RollingPlaces replayed(kWindow), eager(kWindow);
  RollingKeys of_replayed, of_eager;
  replayed.add(device->device);
  for (int step = 0; step < 3 * kWindow; ++step) {
    if (step > 0) replayed.count().add_(1);
    eager.add(device->device);
    const at::Tensor qkv = at::randn({3, 2, 2, 1, 32}, at::device(device->device).dtype(at::kBFloat16));
    const auto attended = [&](RollingKeys& keys, const RollingPlaces& places) {
      return keys.attend(
          qkv[0], qkv[1], qkv[2],
          {.places = places, .rotary = {}, .penalty = {}, .by_kernel = kernels::DistancePenalty::kAlibi});
    };
    EXPECT_TRUE(at::equal(attended(of_replayed, replayed), attended(of_eager, eager))) << "step " << step;
  }
  EXPECT_EQ(replayed.position(), 0);
}

/// On a GPU or emulated: a window that fills, is full and wraps, beside plain operators in the same type and
/// in fp32.
TEST(RollingKeys, OurAttentionOverThemIsThatOfThePlainOperators) {
  const auto device = fused_device();
  if (!device) GTEST_SKIP() << "no GPU here";
  at::manual_seed(static_cast<uint64_t>(getpid()));
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
    const at::Tensor exact = predictions(at::kFloat, FusedKernels::kAuto, false);
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(c10::toString(type));
      const double plain = error_of(predictions(type, FusedKernels::kOff, false), exact);
      EXPECT_LT(error_of(predictions(type, FusedKernels::kAuto, true), exact), 1.5 * plain);
      EXPECT_LT(plain, type == at::kHalf ? 1e-2 : 5e-2);
    }
  }
}

TEST(RollingKeys, LearnedPositionsAndGridsSayWhyTheyCannot) {
  SpaceVariant learned = space_variant("learned", TransformerBlock::kXland, xland_spaces());
  learned.options.pieces.positions = PositionKind::kLearned;
  const auto model = small_model(learned);
  EXPECT_FALSE(model->rolling());
  EXPECT_NE(model->why_not_rolling(), "");
  const auto grid = AlgorithmDistillation::create(ModelOptions(), ModelShape(), 1);
  EXPECT_FALSE(grid->rolling());
  EXPECT_NE(grid->why_not_rolling(), "");
}

}  // namespace
}  // namespace adtrain
