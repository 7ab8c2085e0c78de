#include "run/OtherBlocks.h"

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunConfig xland() {
  RunConfig config;
  config.model.transformer_block = TransformerBlock::kXland;
  return config;
}

std::vector<std::string> changed(RunConfig config, const std::function<void(ModelOptions&)>& change) {
  const RunConfig before = config;
  change(config.model);
  return other_blocks(before, config);
}

TEST(OtherBlocks, WhatNoShapeShowsIsNamed) {
  EXPECT_THAT(changed({}, [](ModelOptions& model) { model.tf_n_head = 2; }),
              ElementsAre("tf_n_head: 4 in the weights, 2 here"));
  EXPECT_THAT(changed(xland(), [](ModelOptions& model) { model.pieces.positions = PositionKind::kRotary; }),
              ElementsAre("tf_positions: alibi in the weights, rotary here"));
}

TEST(OtherBlocks, ThereAreNoneWhereTheSameIsSaidOtherwise) {
  EXPECT_THAT(changed({}, [](ModelOptions& model) { model.transformer_block = TransformerBlock::kPreNorm; }),
              IsEmpty());
  EXPECT_THAT(changed(xland(), [](ModelOptions& model) { model.pieces.positions = PositionKind::kAlibi; }),
              IsEmpty());
  EXPECT_THAT(changed({}, [](ModelOptions& model) { model.tf_n_inner = 4 * model.tf_n_embd; }), IsEmpty());
  EXPECT_THAT(changed({}, [](ModelOptions& model) { model.n_transit = 20; }), IsEmpty())
      << "a longer window shows the same network more";
}

TEST(OtherBlocks, ACheckpointSaysWhatItsWeightsAreOf) {
  RunConfig config;
  const nlohmann::json state = {{"configuration", config.resolved_yaml()}};
  refuse_other_blocks(config, state, "runs/a/checkpoints/step-10");
  config.model.tf_n_head = 2;
  try {
    refuse_other_blocks(config, state, "runs/a/checkpoints/step-10");
    FAIL() << "of other heads";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("runs/a/checkpoints/step-10: "),
                                    HasSubstr("\n  tf_n_head: 4 in the weights, 2 here\n"),
                                    HasSubstr("4 layers, 4 heads")));
  }
  refuse_other_blocks(config, /*state=*/nlohmann::json::object(), "one that no configuration was saved with");
}

}  // namespace
}  // namespace adtrain
