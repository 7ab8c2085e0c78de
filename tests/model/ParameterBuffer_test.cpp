#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::random_plain;
using testing::small_model;
using testing::variant;

std::vector<NamedTensor> copies(const ParameterBuffer& buffer) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : buffer.named()) tensors.push_back({name, tensor.detach().clone()});
  return tensors;
}

TEST(ParameterBuffer, ParametersAreAlignedLeavesThatTileTheFlatTensor) {
  const auto model = small_model(variant("post_norm"));
  const ParameterBuffer& buffer = model->parameters();
  const std::vector<at::Tensor> leaves = buffer.leaves();
  int64_t end = 0, count = 0;
  for (size_t index = 0; const auto& [name, view] : buffer.named()) {
    const at::Tensor& leaf = leaves[index++];
    EXPECT_TRUE(leaf.is_leaf() && leaf.requires_grad()) << name;
    EXPECT_TRUE(view.is_contiguous()) << name;
    EXPECT_EQ(leaf.const_data_ptr<float>(), view.const_data_ptr<float>()) << name;
    EXPECT_EQ(view.storage_offset() % 64, 0) << name;
    EXPECT_GE(view.storage_offset(), end) << name;
    EXPECT_LT(view.storage_offset(), end + 64) << name;
    end = view.storage_offset() + view.numel();
    count += view.numel();
  }
  EXPECT_EQ(buffer.count(), count);
  EXPECT_LT(buffer.flat().numel() - end, 64);
  EXPECT_FALSE(buffer.flat().requires_grad());
}

TEST(ParameterBuffer, WritingTheFlatTensorChangesTheModelAlsoBetweenPasses) {
  const auto model = small_model(variant("pre_norm"));
  const Batch batch = random_plain(2, 9);
  const at::Tensor before = model->predict(batch).actions;
  model->loss(batch, LossPositions::kAll, true).sum.backward();
  at::Tensor flat = model->parameters().flat();
  flat.mul_(0.5);
  EXPECT_FALSE(at::allclose(model->predict(batch).actions, before));
  model->loss(batch, LossPositions::kAll, true).sum.backward();
  flat.zero_();
  EXPECT_TRUE(model->predict(batch).actions.eq(0).all().item<bool>());
}

TEST(ParameterBuffer, GradientsAccumulateIntoViewsGivenToThem) {
  const auto model = small_model(variant("pre_norm"));
  at::Tensor flat_gradient = at::zeros_like(model->parameters().flat());
  int64_t offset = 0;
  for (at::Tensor& parameter : model->parameters().leaves()) {
    parameter.mutable_grad() = flat_gradient.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    offset += parameter.numel();
  }
  const Batch batch = random_plain(2, 9);
  model->loss(batch, LossPositions::kAll, false).sum.backward();
  const at::Tensor once = flat_gradient.clone();
  EXPECT_GT(once.norm().item<double>(), 0);
  model->loss(batch, LossPositions::kAll, false).sum.backward();
  EXPECT_LT(testing::relative_error(flat_gradient, 2 * once), 1e-6);
}

TEST(ParameterBuffer, OrderIsThatOfFirstUse) {
  const auto first_and_last = [](const std::string& name) {
    const auto model = small_model(variant(name));
    return std::pair(model->parameters().named().front().name, model->parameters().named().back().name);
  };
  EXPECT_EQ(first_and_last("pre_norm"),
            std::pair(std::string("embed_context.weight"), std::string("pred_action.bias")));
  EXPECT_EQ(first_and_last("gpt2"),
            std::pair(std::string("embed_state.weight"), std::string("pred_action.bias")));
  EXPECT_EQ(first_and_last("post_norm"),
            std::pair(std::string("pred_token_type.weight"), std::string("pred_action.bias")));
}

TEST(ParameterBuffer, LoadingCopiesByNameInAnyOrderAndType) {
  const auto source = small_model(variant("compressed"), 1);
  const auto target = small_model(variant("compressed"), 2);
  auto tensors = copies(source->parameters());
  std::reverse(tensors.begin(), tensors.end());
  tensors[0].tensor = tensors[0].tensor.to(at::kDouble);
  target->parameters().load(tensors);
  EXPECT_TRUE(at::equal(target->parameters().flat(), source->parameters().flat()));
}

TEST(ParameterBuffer, LoadingReportsAllMismatchesTogetherAndCopiesNothing) {
  const auto model = small_model(variant("pre_norm"));
  auto tensors = copies(model->parameters());
  const at::Tensor before = model->parameters().flat().clone();
  tensors[0].tensor = at::zeros({16, 11});
  tensors[1].name = "embed_contxt.bias";
  tensors[2].tensor = tensors[2].tensor.to(at::kInt);
  try {
    model->parameters().load(tensors);
    FAIL() << "expected a CheckpointError";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("embed_context.weight: found shape [16, 11], expected [16, 10]"),
                      HasSubstr("embed_context.bias is missing (nearest found: embed_contxt.bias)"),
                      HasSubstr("embed_contxt.bias [16] is unexpected"),
                      HasSubstr("embed_query_state.weight: found Int values")));
  }
  EXPECT_TRUE(at::equal(model->parameters().flat(), before));
}

/// One line, instead of every name of both networks.
TEST(ParameterBuffer, WeightsOfTheOtherBlockAreNamedAsSuch) {
  const auto wanted = small_model(variant("pre_norm"));
  for (const auto& [name, words] :
       {std::pair{"post_norm", "transformer_block: post_norm"}, {"xland", "blocks of chosen pieces"}}) {
    const auto given = small_model(variant(name));
    try {
      wanted->parameters().load(copies(given->parameters()));
      FAIL() << "expected a CheckpointError";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("of a network with ") + words));
    }
  }
}

TEST(ParameterBuffer, LeavesMayBeAnImageIn16Bits) {
  const auto model = testing::small_model(testing::variant("pre_norm"));
  ParameterBuffer& parameters = model->parameters();
  const at::Tensor before = parameters.flat().clone();
  parameters.to(at::kCPU, at::kBFloat16);
  EXPECT_TRUE(at::equal(parameters.flat(), before)) << "nothing is lost of the fp32 values";
  const auto follows = [&] {
    bool all = true;
    const std::vector<at::Tensor> leaves = parameters.leaves();
    for (size_t index = 0; const auto& [name, exact] : parameters.named()) {
      const at::Tensor& leaf = leaves[index++];
      EXPECT_EQ(leaf.scalar_type(), at::kBFloat16);
      EXPECT_TRUE(leaf.is_leaf() && leaf.requires_grad());
      all = all && at::equal(leaf.detach(), exact.to(at::kBFloat16));
    }
    return all;
  };
  EXPECT_TRUE(follows());
  at::Tensor flat = parameters.flat();
  flat.mul_(1.25);
  EXPECT_FALSE(follows());
  parameters.refresh();
  EXPECT_TRUE(follows());
  for (const auto& [name, tensor] : parameters.named()) EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
}

TEST(ParameterBuffer, RoundedWeightsPredictAsAnImageOfThemDoesAndTakeNothingBeside) {
  for (const char* const name : {"pre_norm", "post_norm", "gpt2", "vintix"}) {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const auto image = small_model(variant(name)), rounded = small_model(variant(name));
      rounded->parameters().load(copies(image->parameters()));
      image->parameters().to(at::kCPU, type);
      rounded->parameters().round(at::kCPU, type);
      const Batch batch = random_plain(2, 9);
      EXPECT_TRUE(at::equal(rounded->predict(batch).actions, image->predict(batch).actions)) << name;
      EXPECT_EQ(rounded->parameters().flat().scalar_type(), type);
      EXPECT_EQ(rounded->parameters().compute_type(), type);
      EXPECT_EQ(3 * rounded->parameters().bytes(), image->parameters().bytes()) << "without the fp32";
      EXPECT_EQ(rounded->parameters().leaves().front().requires_grad(),
                image->parameters().leaves().front().requires_grad())
          << "by which linear layers choose their product";
      EXPECT_FALSE(rounded->parameters().is_quantised());
    }
  }
}

}  // namespace
}  // namespace adtrain
