#include "model/PreviousTokens.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/FusedDevice.h"
#include "model/RandomBatch.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

using kernels::NewestTokenTables;
using testing::relative_error;

class NewestPreviousToken : public ::testing::Test {
 protected:
  NewestPreviousToken() {
    options_.transformer_block = TransformerBlock::kXland;
    options_.tf_n_embd = 72;
    tokens_.emplace(factory_, options_, ModelShape{}, Initialisation(options_));
    batch_.rewards = at::randn_like(batch_.rewards);
  }

  const at::NoGradGuard no_gradients_;
  ModelOptions options_;
  ParameterFactory factory_{fresh_seed()};
  std::optional<PreviousTokens> tokens_;
  Batch batch_ = testing::random_plain(5, 4);
};

TEST_F(NewestPreviousToken, IsASumOfRowsOfTables) {
  const std::optional<NewestTokenTables> tables = tokens_->newest_tables();
  ASSERT_TRUE(tables);
  const auto newest = [](const at::Tensor& column) { return column.select(1, 3); };
  const auto before = [](const at::Tensor& column) { return column.select(1, 2); };
  const at::Tensor state = newest(batch_.states);
  const at::Tensor sum = tables->actions.index_select(0, before(batch_.actions)) +
                         tables->x.index_select(0, state.select(-1, 0)) +
                         tables->y.index_select(0, state.select(-1, 1)) +
                         before(batch_.rewards).unsqueeze(-1) * tables->reward;
  EXPECT_LT(relative_error(sum.unsqueeze(1), tokens_->newest(batch_)), 1e-5);
}

TEST_F(NewestPreviousToken, IsThatOfThePlainOperatorsByOurKernel) {
  const auto device = testing::fused_device();
  if (!device) GTEST_SKIP() << "no GPU here";
  NewestTokenTables tables = *tokens_->newest_tables();
  for (at::Tensor* table : {&tables.actions, &tables.x, &tables.y, &tables.reward})
    *table = table->to(device->device);
  const Batch batch = batch_.to(device->device);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    ASSERT_TRUE(kernels::newest_tokens_fit(type, options_.tf_n_embd));
    const at::Tensor found =
        kernels::newest_tokens({batch.states, batch.actions, batch.rewards, batch.next_states}, tables, type);
    // Rounded once, to the nearest: at most half a step of 11 (fp16) or 8 (bf16) significant binary digits,
    // and as the plain operators' sums are, but for the few so near the middle of two numbers that fp32's own
    // rounding decides.
    const at::Tensor exact = tokens_->newest(batch_), rounded = exact.to(type);
    EXPECT_LT(relative_error(found.cpu().to(at::kFloat), exact),
              (type == at::kHalf ? 0x1p-11 : 0x1p-8) + 1e-5);
    EXPECT_LT(found.cpu().ne(rounded).to(at::kFloat).mean().item<double>(), 0.03);
  }
  EXPECT_FALSE(kernels::newest_tokens_fit(at::kFloat, options_.tf_n_embd));
  EXPECT_FALSE(kernels::newest_tokens_fit(at::kHalf, 76));
}

TEST_F(NewestPreviousToken, HasTablesOfQuantisedWeightsButNotOfQuantisedInputs) {
  const at::Tensor before = tokens_->newest_tables()->actions;
  const std::vector<NamedTensor> made = factory_.take();
  const QuantisedLinears linears = factory_.take_linears();
  ASSERT_EQ(linears.size(), 2);
  const auto quantise = [&](double outlier_threshold) {
    for (const auto& [name, linear] : linears) {
      const auto weight = std::ranges::find(made, name, &NamedTensor::name);
      linear->how = {.code = QuantisedCode::int8, .outlier_threshold = outlier_threshold};
      linear->matrix = linear->how.quantised(weight->tensor);
    }
  };
  quantise(6);
  EXPECT_FALSE(tokens_->newest_tables());
  quantise(0);
  const std::optional<NewestTokenTables> tables = tokens_->newest_tables();
  ASSERT_TRUE(tables);
  EXPECT_GT(relative_error(tables->actions, before), 0);
  EXPECT_LT(relative_error(tables->actions, before), 2e-2);
}

}  // namespace
}  // namespace adtrain
