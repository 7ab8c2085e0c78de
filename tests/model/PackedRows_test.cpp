// Packed rows: loss and gradients are those of each history alone.

#include <functional>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/Random.h"
#include "model/AnySpaceBatch.h"
#include "model/RandomBatch.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

using testing::relative_error;
using testing::SpaceVariant;

RandomStream fresh_random() {
  return RandomStream(fresh_seed());
}

/// `rows` rows of the variant's length of random histories, and these histories alone.
struct PackedBatch {
  PackedBatch(const SpaceVariant& variant, int64_t rows, RandomStream& random) {
    const int64_t length = variant.options.n_transit;
    std::vector<Batch> packed;
    for (int64_t row = 0; row < rows; ++row) {
      Batch whole;
      for (int64_t end = 0; end < length;) {
        const int64_t count = 1 + random.below(static_cast<uint32_t>(length - end));
        const Batch history = testing::random_rows(variant, 1, count);
        whole = joined(whole, as_packed(history, static_cast<int>(end)));
        alone.push_back(history);
        end += count;
        if (random.below(3) == 0) break;
      }
      packed.push_back(with_padding(whole, length));
    }
    batch = packed.front();
    for (size_t row = 1; row < packed.size(); ++row) batch = joined(batch, packed[row], 0);
  }

  static Batch as_packed(const Batch& history, int first) {
    const int64_t count = history.actions.size(1);
    Batch packed = history;
    const auto one_later = [&](const at::Tensor& before, const at::Tensor& values) {
      return at::cat({before.unsqueeze(1), values.narrow(1, 0, count - 1)}, 1);
    };
    packed.before_action = one_later(history.before_action, history.actions);
    packed.before_reward = one_later(history.before_reward, history.rewards);
    for (at::Tensor* statistic : {&packed.state_mean, &packed.state_deviation}) {
      if (statistic->defined()) *statistic = at::repeat_interleave(statistic->unsqueeze(1), count, 1);
    }
    packed.segment_first = at::full({1, count}, first, at::kInt);
    return packed;
  }

  static Batch joined(const Batch& one, const Batch& other, int64_t dimension = 1) {
    if (one.empty()) return other;
    Batch both = one;
    for (const auto part : {&Batch::states, &Batch::actions, &Batch::rewards, &Batch::begins,
                            &Batch::before_action, &Batch::before_reward, &Batch::state_mean,
                            &Batch::state_deviation, &Batch::segment_first, &Batch::filled}) {
      if ((other.*part).defined()) both.*part = at::cat({one.*part, other.*part}, dimension);
    }
    return both;
  }

  /// Which repeats the last step, as ColumnWindows' does.
  static Batch with_padding(Batch whole, int64_t length) {
    const int64_t filled = whole.actions.size(1);
    for (int64_t column = filled; column < length; ++column) {
      Batch step = testing::window(whole, filled - 1, 1);
      for (const auto part :
           {&Batch::before_action, &Batch::before_reward, &Batch::state_mean, &Batch::state_deviation}) {
        if ((whole.*part).defined()) step.*part = (whole.*part).narrow(1, filled - 1, 1);
      }
      step.segment_first = at::full({1, 1}, column, at::kInt);
      whole = joined(whole, step);
    }
    whole.filled = at::full({1}, filled, at::kInt);
    return whole;
  }

  Batch batch;
  std::vector<Batch> alone;
};

/// Loss, correct predictions, targets and the gradient of a sum of losses.
struct Sums {
  at::Tensor loss, correct, gradient;
  int64_t targets = 0;

  static Sums of(AlgorithmDistillation& model, const std::vector<Batch>& batches) {
    Sums sums;
    for (const Batch& batch : batches) {
      const AlgorithmDistillation::Loss loss = model.loss(batch, LossPositions::kAll, /*training=*/true);
      sums.loss = sums.loss.defined() ? sums.loss + loss.sum : loss.sum;
      if (loss.correct.defined())
        sums.correct = sums.correct.defined() ? sums.correct + loss.correct : loss.correct;
      sums.targets += loss.counted.defined() ? loss.counted.item<int64_t>() : loss.targets;
    }
    sums.gradient = testing::flat_gradient(model, sums.loss);
    return sums;
  }
};

/// The same histories twice.
struct Drawn {
  std::vector<Batch> packed, alone;
};

/// Packed rows are rounded otherwise than single ones, and on the other side of LeakyReLU's kink a gradient
/// is another one, in one of some hundred draws. A fault of packing would show in each draw.
void expect_those_of_each_alone(AlgorithmDistillation& model, const std::function<Drawn()>& draw) {
  constexpr int kDraws = 3;
  double error = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Drawn drawn = draw();
    const Sums expected = Sums::of(model, drawn.alone), found = Sums::of(model, drawn.packed);
    EXPECT_EQ(found.targets, expected.targets);
    EXPECT_LT(relative_error(found.loss, expected.loss), 1e-5);
    // Several groups together count none where one has real actions.
    if (drawn.packed.front().parts.empty()) {
      EXPECT_EQ(found.correct.defined(), expected.correct.defined());
    }
    EXPECT_TRUE(!found.correct.defined() || found.correct.equal(expected.correct));
    error = relative_error(found.gradient, expected.gradient);
    if (error < 1e-5) return;
  }
  ADD_FAILURE() << "gradients differ by " << error << " of the largest, and more than 1e-5 in each draw";
}

void expect_those_of_each_alone(SpaceVariant variant, RandomStream& random) {
  variant.options.tf_dropout = variant.options.tf_attn_dropout = 0;
  expect_those_of_each_alone(*testing::small_model(variant), [&] {
    const PackedBatch packed(variant, 4, random);
    return Drawn{{packed.batch}, packed.alone};
  });
}

TEST(PackedRows, OfEverySpaceAreThoseOfEachHistoryAlone) {
  RandomStream random = fresh_random();
  for (const SpaceVariant& variant : testing::space_variants()) {
    SCOPED_TRACE(variant.name);
    expect_those_of_each_alone(variant, random);
  }
}

TEST(PackedRows, OfEveryPositionAndNormAreThoseOfEachHistoryAlone) {
  RandomStream random = fresh_random();
  const std::vector<SpaceVariant> variants = testing::space_variants();
  for (const size_t which : {size_t{1}, size_t{3}}) {
    for (const PositionKind positions :
         {PositionKind::kLearned, PositionKind::kRotary, PositionKind::kAlibi, PositionKind::kNone}) {
      for (const NormKind norm : {NormKind::kRms, NormKind::kLayer}) {
        for (const Choice qk_norm : {Choice::kOn, Choice::kOff}) {
          SpaceVariant variant = variants[which];
          variant.options.pieces.positions = positions;
          variant.options.pieces.norm = norm;
          variant.options.pieces.qk_norm = qk_norm;
          SCOPED_TRACE(variant.options.block_pieces().text());
          expect_those_of_each_alone(variant, random);
        }
      }
    }
  }
}

/// What stands in another history, or in padding, changes nothing of one.
TEST(PackedRows, ReadNothingOfOthers) {
  SpaceVariant variant = testing::space_variants()[5];
  variant.options.tf_dropout = variant.options.tf_attn_dropout = 0;
  const auto model = testing::small_model(variant);
  const auto row = [&](const Batch& first, const Batch& second) {
    Batch whole = PackedBatch::joined(PackedBatch::as_packed(first, 0), PackedBatch::as_packed(second, 4));
    return PackedBatch::with_padding(whole, variant.options.n_transit);
  };
  const Batch kept = testing::random_rows(variant, 1, 4), one = testing::random_rows(variant, 1, 3),
              other = testing::random_rows(variant, 1, 3);
  const auto predicted = [&](const Batch& batch) {
    return model->forward(batch, LossPositions::kAll, /*training=*/false).actions;
  };
  const at::Tensor found = predicted(row(kept, one)), changed = predicted(row(kept, other));
  EXPECT_TRUE(found.narrow(1, 0, 4).equal(changed.narrow(1, 0, 4)));
  EXPECT_FALSE(found.narrow(1, 4, 3).equal(changed.narrow(1, 4, 3)));
  Batch padded = row(kept, one);
  padded.states.narrow(1, 7, 2).fill_(1e3);
  padded.actions.narrow(1, 7, 2).fill_(1e3);
  EXPECT_TRUE(predicted(padded).narrow(1, 0, 7).equal(found.narrow(1, 0, 7)));
  EXPECT_EQ(model->loss(padded, LossPositions::kAll, false).sum.item<float>(),
            model->loss(row(kept, one), LossPositions::kAll, false).sum.item<float>());
}

/// Rows of several groups of spaces.
TEST(PackedRows, OfSeveralGroupsAreThoseOfEachGroup) {
  RandomStream random = fresh_random();
  for (const testing::GroupedVariant& variant : testing::grouped_variants()) {
    SCOPED_TRACE(variant.name);
    ModelOptions options = variant.groups.front().options;
    options.tf_dropout = options.tf_attn_dropout = 0;
    const auto model = AlgorithmDistillation::create(options, variant.shape(), 7);
    expect_those_of_each_alone(*model, [&] {
      Batch together;
      std::vector<Batch> alone;
      for (size_t group = 0; group < variant.groups.size(); ++group) {
        PackedBatch packed(variant.groups[group], 3, random);
        packed.batch.group = static_cast<int64_t>(group);
        together.parts.push_back(packed.batch);
        for (Batch& history : packed.alone) {
          history.group = static_cast<int64_t>(group);
          alone.push_back(history);
        }
      }
      return Drawn{{together}, alone};
    });
  }
}

}  // namespace
}  // namespace adtrain
