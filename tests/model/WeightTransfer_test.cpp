#include "model/WeightTransfer.h"

#include <cmath>
#include <map>
#include <set>
#include <string>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/AnySpaceBatch.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::set<std::string> names_of(const std::vector<WeightTransfer::Difference>& differences) {
  std::set<std::string> names;
  for (const auto& difference : differences) names.insert(difference.name);
  return names;
}

/// Takes `from`'s weights into `to` and checks every tensor: those that are taken are `from`'s, all others as
/// they were.
WeightTransfer carried_out(AlgorithmDistillation& from, AlgorithmDistillation& to) {
  const std::vector<NamedTensor> given = from.parameters().named();
  std::map<std::string, at::Tensor> before, source;
  for (const auto& [name, tensor] : to.parameters().named()) before[name] = tensor.clone();
  for (const auto& [name, tensor] : given) source[name] = tensor;
  const WeightTransfer transfer = WeightTransfer::between(given, to.parameters().named(), false);
  EXPECT_THAT(transfer.faults, IsEmpty());
  transfer.carry_out(given, to.parameters());
  const std::set<std::string> taken(transfer.taken.begin(), transfer.taken.end());
  for (const auto& [name, tensor] : to.parameters().named())
    EXPECT_TRUE(at::equal(tensor, taken.contains(name) ? source.at(name) : before.at(name))) << name;
  EXPECT_EQ(taken.size() + transfer.fresh.size(), before.size());
  EXPECT_EQ(taken.size() + names_of(transfer.fresh).size(), before.size());
  return transfer;
}

TEST(WeightTransfer, OfTheSameSpacesAllIsTaken) {
  std::vector<testing::Variant> variants = testing::plain_variants();
  variants.push_back(testing::variant("compressed"));
  for (const testing::Variant& variant : variants) {
    const auto from = testing::small_model(variant, 1), to = testing::small_model(variant, 2);
    to->parameters().to(at::kCPU, at::kBFloat16);
    const WeightTransfer transfer = carried_out(*from, *to);
    EXPECT_THAT(transfer.fresh, IsEmpty()) << variant.name;
    EXPECT_THAT(transfer.left_out, IsEmpty()) << variant.name;
    EXPECT_TRUE(at::equal(to->parameters().low_precision(), to->parameters().flat().to(at::kBFloat16)))
        << "what the forward pass reads";
  }
}

TEST(WeightTransfer, EncodersAndHeadsOfOtherSpacesAreNew) {
  std::vector<testing::Variant> variants = testing::plain_variants();
  variants.push_back(testing::variant("compressed"));
  for (const testing::Variant& variant : variants) {
    SCOPED_TRACE(variant.name);
    const auto from = testing::small_model(variant, 1);
    const auto to = AlgorithmDistillation::create(variant.options, {.grid_size = 7, .num_actions = 6}, 2);
    const WeightTransfer transfer = carried_out(*from, *to);
    EXPECT_THAT(names_of(transfer.fresh),
                AllOf(Contains("pred_action.weight"), Contains("pred_action.bias")));
    EXPECT_THAT(names_of(transfer.fresh), Contains(HasSubstr("embed_")));
    EXPECT_THAT(transfer.left_out, IsEmpty());
    EXPECT_THAT(transfer.lines(), Contains("new:      pred_action.weight [6, 16], found [5, 16]"));
  }
}

TEST(WeightTransfer, BlocksOfAGridFamilyServeTasksOfAnySpaceAndGroupsOfThem) {
  const auto grid = testing::small_model(testing::variant("xland"));
  const auto own = testing::small_model(testing::space_variants()[0]);
  const WeightTransfer first = carried_out(*grid, *own);
  EXPECT_THAT(first.taken, Contains("blocks.1.mlp.down.weight"));
  EXPECT_THAT(names_of(first.fresh), Contains(HasSubstr("observation.")));
  EXPECT_THAT(names_of(first.left_out), Contains("embed_coordinate.weight"));
  EXPECT_THAT(first.lines(), Contains(HasSubstr("left out: embed_coordinate.weight [18, ")));

  const testing::GroupedVariant variant = testing::grouped_variants()[1];
  const auto groups = AlgorithmDistillation::create(variant.groups[0].options, variant.shape(), 3);
  const WeightTransfer second = carried_out(*own, *groups);
  EXPECT_THAT(names_of(second.fresh), Contains("groups.second.pred_action.weight"));
  EXPECT_THAT(names_of(second.left_out), Contains("pred_action.weight"));
  EXPECT_THAT(second.lines(),
              Contains(HasSubstr("groups.second.pred_action.weight [7, 16], which is not there")));
}

std::vector<std::string> faults_between(const testing::Variant& from, const testing::Variant& to) {
  return WeightTransfer::between(testing::small_model(from)->parameters().named(),
                                 testing::small_model(to)->parameters().named(), false)
      .faults;
}

TEST(WeightTransfer, OtherBlocksAndPositionsAreRefused) {
  const testing::Variant variant = testing::variant("post_norm");
  testing::Variant other = variant;
  other.options.tf_n_embd = 24;
  EXPECT_THAT(faults_between(variant, other),
              Contains("transformer_encoder.layers.0.linear1.bias: found shape [64], expected [96]"));
  other = variant;
  other.options.tf_n_layer = 3;
  EXPECT_THAT(
      faults_between(variant, other),
      Contains(HasSubstr("transformer_encoder.layers.2.linear1.bias: not found, expected shape [64]")));
  EXPECT_THAT(faults_between(other, variant),
              Contains(HasSubstr("layers.2.linear1.bias: found shape [64], expected no such tensor")));
  other = variant;
  other.options.n_transit = 12;
  EXPECT_THAT(faults_between(variant, other),
              ::testing::ElementsAre("pos_embedding: found shape [1, 9, 16], expected [1, 12, 16]"));
  EXPECT_THAT(faults_between(variant, testing::variant("gpt2")), Contains(HasSubstr("transformer.h.0")));
}

TEST(WeightTransfer, NothingOfANetworkWithUnknownNamesMayDiffer) {
  const std::vector<NamedTensor> given = {{"a", at::ones({2})}, {"b", at::ones({3}, at::kLong)}},
                                 wanted = {{"a", at::ones({3})}, {"b", at::ones({3})}, {"c", at::ones({1})}};
  EXPECT_THAT(WeightTransfer::between(given, wanted, /*same_spaces=*/true).faults,
              ::testing::ElementsAre("a: found shape [2], expected [3]",
                                     "b: found Long values, expected floating-point ones",
                                     HasSubstr("c: not found, expected shape [1]")));
  EXPECT_THAT(WeightTransfer::between(std::vector<NamedTensor>{{"a", at::full({3}, NAN)}},
                                      std::vector<NamedTensor>{{"a", at::ones({3})}}, true)
                  .faults,
              ::testing::ElementsAre("a: found NaN or infinite values, expected finite ones"));
}

}  // namespace
}  // namespace adtrain
