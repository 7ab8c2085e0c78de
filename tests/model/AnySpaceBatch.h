#pragma once

#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "model/AlgorithmDistillation.h"

/// Networks over small spaces of every kind, and fresh random rows of them.
namespace adtrain::testing {

struct SpaceVariant {
  std::string name;
  ModelOptions options;
  TaskSpaces spaces;
  bool normalised = false;  ///< whether its batches say by what observations are normalised

  ModelShape shape() const {
    ModelShape shape;
    shape.spaces = {spaces};
    return shape;
  }
};

/// Numbers that count from `start` on.
inline Space started(Space space, std::vector<int64_t> start) {
  space.start = std::move(start);
  return space;
}

inline std::vector<int64_t> repeated(const std::vector<int64_t>& values, int64_t times) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < times; ++i) all.insert(all.end(), values.begin(), values.end());
  return all;
}

inline Space vector_of(std::vector<int64_t> shape) {
  return Space::box(std::move(shape), {-1e6}, {1e6});
}

/// A view of 5 × 5 cells of a tile and a colour packed in a byte, as in XLand-100B's file.
inline TaskSpaces xland_spaces() {
  TaskSpaces spaces{Space::multi_discrete({5, 5}, {13 * 12}), Space::discrete(6), {13, 12}};
  spaces.observation.type = spaces.action.type = ElementType::kUint8;
  return spaces;
}

inline SpaceVariant space_variant(const std::string& name, TransformerBlock block, TaskSpaces spaces) {
  SpaceVariant made{name, {}, std::move(spaces)};
  made.options.transformer_block = block;
  made.options.tf_n_embd = 16;
  made.options.tf_n_layer = 2;
  made.options.tf_n_head = 2;
  made.options.n_transit = 9;
  made.options.label_smoothing = 0.1;
  return made;
}

/// Every encoder, head and preset, and starts other than 0.
inline std::vector<SpaceVariant> space_variants() {
  using Block = TransformerBlock;
  std::vector<SpaceVariant> variants = {
      space_variant("any_space_xland", Block::kXland, xland_spaces()),
      space_variant("any_space_vintix", Block::kVintix, {vector_of({7}), vector_of({3}), {}}),
      space_variant(
          "any_space_vintix_whole", Block::kVintix,
          {started(Space::discrete(9), {2}), started(Space::multi_discrete({2}, {3, 4}), {1, 0}), {}}),
      space_variant("any_space_discrete", Block::kPreNorm, {Space::discrete(11), Space::discrete(4), {}}),
      space_variant("any_space_digits", Block::kPreNorm,
                    {started(Space::multi_discrete({3}, {4, 5, 6}), {0, 2, -1}),
                     Space::multi_discrete({2, 2}, {2, 3, 4, 5}),
                     {}}),
      space_variant("any_space_gaussian", Block::kPreNorm, {vector_of({2, 3}), vector_of({2}), {}}),
      space_variant(
          "any_space_channels", Block::kXland,
          {Space::multi_discrete({4, 5, 2}, repeated({13, 12}, 20)), started(Space::discrete(6), {3}), {}}),
      space_variant("any_space_grid", Block::kXland,
                    {Space::multi_discrete({3, 4}, {7}), vector_of({2}), {}})};
  variants[1].normalised = true;
  variants[5].options.space_pieces = {ObservationEncoderKind::kLinear, ActionHeadKind::kGaussian};
  variants[6].options.first_step = FirstStep::kLearned;
  return variants;
}

/// A network over several groups of spaces, with the settings of the first of them.
struct GroupedVariant {
  std::string name;
  std::vector<SpaceVariant> groups;  ///< a group is called as its variant

  ModelShape shape() const {
    ModelShape shape;
    for (const SpaceVariant& group : groups) {
      shape.spaces.push_back(group.spaces);
      shape.spaces.back().group = group.name;
    }
    return shape;
  }
};

/// Groups of whole and of real numbers, some normalised, with first steps that are learned and that are not.
inline std::vector<GroupedVariant> grouped_variants() {
  using Block = TransformerBlock;
  const auto both = [](Block block, TaskSpaces first, TaskSpaces second) {
    return std::vector{space_variant("first-one", block, std::move(first)),
                       space_variant("second", block, std::move(second))};
  };
  std::vector<GroupedVariant> variants = {
      {"any_space_groups_vintix", both(Block::kVintix, {vector_of({5}), vector_of({2}), {}},
                                       {started(Space::discrete(9), {2}), Space::discrete(4), {}})},
      {"any_space_groups_xland",
       both(Block::kXland, xland_spaces(), {vector_of({3}), Space::multi_discrete({2}, {3, 4}), {}})}};
  variants[0].groups[0].normalised = true;
  variants[1].groups[0].options.first_step = FirstStep::kLearned;
  return variants;
}

/// (…, *space.shape), anywhere in the space.
inline at::Tensor random_of(const Space& space, std::vector<int64_t> extents) {
  extents.insert(extents.end(), space.shape.begin(), space.shape.end());
  if (space.kind == Space::Kind::kBox) return at::randn(extents, at::kFloat);
  const at::Tensor values = at::tensor(space.values, at::kDouble).view(space.shape);
  const at::Tensor start = at::tensor(space.start, at::kLong).view(space.shape);
  const at::Tensor numbers = (at::rand(extents, at::kDouble) * values).floor().to(at::kLong) + start;
  return numbers.to(space.type == ElementType::kUint8 ? at::kByte : at::kLong);
}

/// Rows of any space, which begin within episodes and in which episodes begin.
inline Batch random_rows(const SpaceVariant& variant, int64_t rows, int64_t steps) {
  const Space &observation = variant.spaces.observation, &action = variant.spaces.action;
  Batch batch;
  batch.states = random_of(observation, {rows, steps});
  batch.actions = random_of(action, {rows, steps});
  batch.rewards = at::randn({rows, steps}, at::kFloat);
  batch.before_action = random_of(action, {rows});
  batch.before_reward = at::randn({rows}, at::kFloat);
  batch.begins = at::rand({rows, steps}).lt(0.3).to(at::kByte);
  if (variant.normalised) {
    std::vector<int64_t> extents = {rows};
    extents.insert(extents.end(), observation.shape.begin(), observation.shape.end());
    batch.state_mean = at::randn(extents, at::kFloat);
    batch.state_deviation = at::rand(extents, at::kFloat) + 0.5;
  }
  return batch;
}

/// Steps first … first + count − 1 of every row, as a window that is cut there.
inline Batch window(const Batch& batch, int64_t first, int64_t count) {
  Batch cut = batch;
  cut.states = batch.states.narrow(1, first, count);
  cut.actions = batch.actions.narrow(1, first, count);
  cut.rewards = batch.rewards.narrow(1, first, count);
  cut.begins = batch.begins.narrow(1, first, count);
  if (first > 0) {
    cut.before_action = batch.actions.select(1, first - 1);
    cut.before_reward = batch.rewards.select(1, first - 1);
  }
  return cut;
}

inline std::unique_ptr<AlgorithmDistillation> small_model(const SpaceVariant& variant, uint64_t seed = 7) {
  return AlgorithmDistillation::create(variant.options, variant.shape(), seed);
}

}  // namespace adtrain::testing
