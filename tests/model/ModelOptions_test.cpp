#include "model/ModelOptions.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The one finding of these options; "key: message".
std::string only_finding(const ModelOptions& options) {
  Findings findings;
  options.check(findings);
  EXPECT_EQ(findings.all().size(), 1U);
  return findings.empty() ? "" : findings.all()[0].key + ": " + findings.all()[0].message;
}

TEST(ModelOptions, ThePublishedSettingsAreFine) {
  ModelOptions dicp;
  ModelOptions guide;
  guide.tf_n_embd = 64;
  guide.n_transit = 240;
  guide.tf_n_inner = 128;
  guide.use_compressed_context = true;
  ModelOptions gpt2;
  gpt2.model = ModelKind::kGpt2;
  for (const ModelOptions& options : {dicp, guide, gpt2}) {
    Findings findings;
    options.check(findings);
    EXPECT_TRUE(findings.empty());
  }
  EXPECT_EQ(dicp.block(), TransformerBlock::kPreNorm);
  EXPECT_EQ(guide.block(), TransformerBlock::kPostNorm);
  EXPECT_EQ(gpt2.block(), TransformerBlock::kGpt2);
}

TEST(ModelOptions, HeadsMustDivideTheWidthAndRotaryHeadsBeEven) {
  ModelOptions options;
  options.tf_n_head = 5;
  EXPECT_THAT(only_finding(options),
              HasSubstr("tf_n_head: found 5 heads, which do not divide tf_n_embd = 32"));
  options.tf_n_embd = 15;
  EXPECT_THAT(only_finding(options), HasSubstr("5 heads of 3 features"));
  options.transformer_block = TransformerBlock::kPostNorm;
  Findings findings;
  options.check(findings);
  EXPECT_TRUE(findings.empty());
}

TEST(ModelOptions, CompressedContextNeedsPositionsForTwoRegions) {
  ModelOptions options;
  options.use_compressed_context = true;
  options.n_transit = 80;
  const std::string finding = only_finding(options);
  EXPECT_THAT(finding, HasSubstr("n_transit: found 80 positions; expected at least 164"));
  EXPECT_THAT(finding, HasSubstr("lower compress_interval to 38"));
  options.compress_interval = 38;
  Findings findings;
  options.check(findings);
  EXPECT_TRUE(findings.empty());
  options.n_transit = 5;
  EXPECT_THAT(only_finding(options), ::testing::Not(HasSubstr("lower compress_interval")));
}

TEST(ModelOptions, ModelAndBlockMustFit) {
  ModelOptions options;
  options.model = ModelKind::kGpt2;
  options.transformer_block = TransformerBlock::kPreNorm;
  EXPECT_THAT(only_finding(options), HasSubstr("transformer_block"));
  options.model = ModelKind::kAd;
  options.transformer_block = TransformerBlock::kGpt2;
  EXPECT_THAT(only_finding(options), HasSubstr("transformer_block"));
  options.transformer_block = TransformerBlock::kPreNorm;
  options.use_compressed_context = true;
  options.n_transit = 240;
  EXPECT_THAT(only_finding(options), HasSubstr("compressed context, which is built on post_norm"));
  options.transformer_block = TransformerBlock::kAuto;
  options.model = ModelKind::kGpt2;
  EXPECT_THAT(only_finding(options), HasSubstr("use_compressed_context: found true with model: GPT2"));
}

TEST(ModelOptions, TheEnvironmentIsLearntFromTransitions) {
  ModelOptions options;
  options.dynamics = true;
  Findings findings;
  options.check(findings);
  EXPECT_TRUE(findings.empty());
  options.transformer_block = TransformerBlock::kXland;
  EXPECT_THAT(only_finding(options), HasSubstr("dynamics: found true with token_layout: previous"));
  options.token_layout = TokenLayout::kTransition;
  options.check(findings);
  EXPECT_TRUE(findings.empty());
  options = {};
  options.dynamics = true;
  options.model = ModelKind::kGpt2;
  EXPECT_THAT(only_finding(options), HasSubstr("dynamics: found true with token_layout: split"));
  options.model = ModelKind::kCompressedAd;
  options.n_transit = 240;
  EXPECT_THAT(only_finding(options), HasSubstr("dynamics: found true with compressed context"));
}

TEST(ModelOptions, TheBlockThatAutoMeansIsNamed) {
  ModelOptions options;
  EXPECT_THAT(options.architecture(), HasSubstr("AD with pre-norm blocks: 4 layers, 32 wide, 4 heads"));
  EXPECT_THAT(options.notices(), ::testing::ElementsAre(HasSubstr("post_norm: name the one")));
  options.use_compressed_context = true;
  EXPECT_THAT(options.architecture(), HasSubstr("post-norm blocks"));
  options.use_compressed_context = false;
  options.model = ModelKind::kGpt2;
  EXPECT_THAT(options.architecture(), HasSubstr("GPT-2's blocks"));
  EXPECT_THAT(options.notices(), IsEmpty());
}

TEST(ModelOptions, SettingsWithoutEffectAreNoticed) {
  ModelOptions options;
  options.transformer_block = TransformerBlock::kPreNorm;
  EXPECT_THAT(options.notices(), IsEmpty());
  options.tf_n_embd = 64;
  options.tf_n_inner = 128;
  EXPECT_EQ(options.inner_width(), 128);
  EXPECT_THAT(options.notices(), IsEmpty());
  options.transformer_block = TransformerBlock::kPostNorm;
  EXPECT_EQ(options.inner_width(), 256);
  EXPECT_THAT(options.notices(), ::testing::ElementsAre(HasSubstr("tf_n_inner = 128 has no effect")));
}

/// Options of these settings, "key=value".
ModelOptions options_of(const std::vector<std::string>& settings) {
  ModelOptions options;
  Section section("Model");
  options.declare(section);
  for (const std::string& setting : settings) {
    const std::string name = setting.substr(0, setting.find('='));
    const auto key = std::ranges::find(section.keys(), name, &Key::name);
    EXPECT_TRUE(key != section.keys().end() && !key->assign(setting.substr(name.size() + 1), false))
        << setting;
  }
  return options;
}

TEST(ModelOptions, TheFourNetworksWithANameStayTheirOwn) {
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {},
           {"transformer_block=pre_norm", "tf_norm=rms", "tf_final_norm=off", "tf_mlp=swiglu",
            "tf_positions=rotary", "tf_qk_norm=off", "tf_bias=attention", "token_layout=transition"},
           {"transformer_block=post_norm", "tf_norm=layer", "tf_mlp=gelu", "tf_positions=learned",
            "tf_bias=all"},
           {"use_compressed_context=true", "n_transit=240", "tf_final_norm=off", "token_layout=transition"},
           {"model=GPT2", "tf_final_norm=on", "token_layout=split"},
           {"token_layout=split"}}) {
    ModelOptions options = options_of(settings);
    Findings findings;
    options.check(findings);
    EXPECT_TRUE(findings.empty()) << ::testing::PrintToString(settings);
    EXPECT_FALSE(options.composed()) << ::testing::PrintToString(settings);
    options.decide();
    EXPECT_EQ(options.pieces, BlockPieces())
        << "a saved configuration that names pieces is of a composed network";
    const bool is_named_by_it = settings == std::vector<std::string>{"token_layout=split"};
    EXPECT_EQ(options.token_layout, is_named_by_it ? TokenLayout::kSplit : TokenLayout::kAuto)
        << ::testing::PrintToString(settings);
  }
  EXPECT_EQ(options_of({"token_layout=split"}).block(), TransformerBlock::kGpt2);
}

TEST(ModelOptions, AnyOtherPieceOrLayoutMakesAComposedNetwork) {
  for (const std::string setting :
       {"tf_norm=layer", "tf_final_norm=on", "tf_mlp=gelu", "tf_positions=learned", "tf_positions=alibi",
        "tf_positions=none", "tf_qk_norm=on", "tf_bias=all", "tf_bias=none", "token_layout=previous",
        "transformer_block=xland", "transformer_block=vintix"}) {
    EXPECT_TRUE(options_of({setting}).composed()) << setting;
  }
}

TEST(ModelOptions, PresetsAreThoseOfTheirProjectsAndAPieceChangesThatPieceAlone) {
  const ModelOptions xland = options_of({"transformer_block=xland"});
  EXPECT_EQ(xland.layout(), TokenLayout::kPrevious);
  EXPECT_EQ(xland.block_pieces(), (BlockPieces{NormKind::kLayer, Choice::kOff, MlpKind::kGelu,
                                               PositionKind::kAlibi, Choice::kOff, BiasPlaces::kAll}));
  const ModelOptions vintix = options_of({"transformer_block=vintix"});
  EXPECT_EQ(vintix.block_pieces(), (BlockPieces{NormKind::kLayer, Choice::kOn, MlpKind::kGelu,
                                                PositionKind::kAlibi, Choice::kOn, BiasPlaces::kAll}));
  ModelOptions changed =
      options_of({"transformer_block=vintix", "tf_positions=rotary", "token_layout=transition"});
  BlockPieces expected = vintix.block_pieces();
  expected.positions = PositionKind::kRotary;
  EXPECT_EQ(changed.block_pieces(), expected);
  EXPECT_EQ(changed.layout(), TokenLayout::kTransition);
  changed.decide();
  EXPECT_EQ(changed.pieces, expected);
  EXPECT_EQ(changed.architecture(),
            "AD with vintix blocks (LayerNorm before and at the end, QK norm, GELU, rotary positions, "
            "biases: all), "
            "transition tokens: 4 layers, 32 wide, 4 heads, 80 transitions");
}

TEST(ModelOptions, CombinationsThatNoNetworkHasAreRefusedByName) {
  const auto finding = [](const std::vector<std::string>& settings) {
    return only_finding(options_of(settings));
  };
  EXPECT_THAT(
      finding({"transformer_block=post_norm", "tf_norm=rms"}),
      HasSubstr(
          "tf_norm: found rms with transformer_block: post_norm, whose pieces are fixed; expected layer"));
  EXPECT_THAT(finding({"use_compressed_context=true", "n_transit=240", "tf_positions=alibi"}),
              HasSubstr("tf_positions: found alibi with transformer_block: post_norm"));
  EXPECT_THAT(
      finding({"model=GPT2", "tf_qk_norm=on"}),
      HasSubstr("tf_qk_norm: found on with transformer_block: gpt2, whose pieces are fixed; expected off"));
  EXPECT_THAT(finding({"transformer_block=post_norm", "token_layout=previous"}),
              HasSubstr("token_layout: found previous with transformer_block: post_norm"));
  EXPECT_THAT(finding({"model=GPT2", "token_layout=previous"}),
              HasSubstr("token_layout: found previous with model: GPT2"));
  EXPECT_THAT(finding({"use_compressed_context=true", "n_transit=240", "token_layout=split"}),
              HasSubstr("token_layout: found split with compressed context"));
  EXPECT_THAT(
      finding({"use_compressed_context=true", "n_transit=240", "transformer_block=xland"}),
      HasSubstr("transformer_block: found xland with compressed context, which is built on post_norm"));
  EXPECT_THAT(finding({"transformer_block=xland", "token_layout=split"}), HasSubstr("transformer_block"));
  EXPECT_THAT(finding({"transformer_block=xland", "tf_positions=rotary", "tf_n_embd=12"}),
              HasSubstr("tf_n_head: found 4 heads of 3 features"));
}

TEST(ModelOptions, ALearnedFirstStepWithoutPreviousTokensIsNoticed) {
  EXPECT_THAT(options_of({"transformer_block=pre_norm", "first_step=learned"}).notices(),
              ::testing::ElementsAre(HasSubstr("first_step = learned has no effect")));
  EXPECT_THAT(options_of({"transformer_block=xland", "first_step=learned"}).notices(), IsEmpty());
}

/// The one finding of these settings with tasks of any space.
std::string finding_of_own_tasks(const std::vector<std::string>& settings) {
  Findings findings;
  options_of(settings).check_own_tasks(findings);
  EXPECT_EQ(findings.all().size(), 1U) << ::testing::PrintToString(settings);
  return findings.empty() ? "" : findings.all()[0].key + ": " + findings.all()[0].message;
}

TEST(ModelOptions, TasksOfAnySpaceMeanPreviousTokensAndVintixLearnsTheFirstStep) {
  for (const std::string block : {"auto", "pre_norm", "xland", "vintix"}) {
    const ModelOptions options = options_of({"transformer_block=" + block});
    Findings findings;
    options.check_own_tasks(findings);
    EXPECT_TRUE(findings.empty()) << block;
    ModelOptions decided = options.of_own_tasks();
    EXPECT_EQ(decided.layout(), TokenLayout::kPrevious) << block;
    EXPECT_TRUE(decided.composed()) << block;
    EXPECT_EQ(decided.first_step, block == "vintix" ? FirstStep::kLearned : FirstStep::kZeros) << block;
    decided.decide();
    EXPECT_EQ(decided.token_layout, TokenLayout::kPrevious) << block;
  }
  EXPECT_EQ(options_of({"transformer_block=vintix", "first_step=zeros"}).of_own_tasks().first_step,
            FirstStep::kZeros);
  ModelOptions of_a_grid = options_of({"transformer_block=vintix"});
  of_a_grid.decide();
  EXPECT_EQ(of_a_grid.first_step, FirstStep::kZeros);
}

TEST(ModelOptions, WhatTasksOfAnySpaceCannotHaveIsRefusedByName) {
  EXPECT_THAT(finding_of_own_tasks({"model=GPT2"}), HasSubstr("model: found GPT2 with tasks of your own"));
  EXPECT_THAT(finding_of_own_tasks({"model=CompressedAD", "n_transit=240"}),
              HasSubstr("model: found compressed context with tasks of your own"));
  EXPECT_THAT(finding_of_own_tasks({"transformer_block=post_norm"}),
              HasSubstr("transformer_block: found post_norm with tasks of your own"));
  for (const std::string layout : {"transition", "split"}) {
    EXPECT_THAT(finding_of_own_tasks({"token_layout=" + layout}),
                HasSubstr("token_layout: found " + layout + " with tasks of your own"));
  }
  EXPECT_THAT(finding_of_own_tasks({"transformer_block=vintix", "tf_n_embd=15", "tf_n_head=3"}),
              HasSubstr("tf_n_embd: found 15 with transformer_block: vintix"));
  EXPECT_THAT(finding_of_own_tasks({"tf_n_head=5"}), HasSubstr("which do not divide"));
}

TEST(ModelOptions, KeysOfThePythonFilesAreKnown) {
  ModelOptions options;
  Section section("Model");
  options.declare(section);
  const auto key = [&](const std::string& name) -> Key& {
    for (Key& each : section.keys()) {
      if (each.name() == name) return each;
    }
    throw std::runtime_error("no key " + name);
  };
  EXPECT_EQ(key("model").assign("ad", false), std::nullopt);
  EXPECT_EQ(key("model").assign("CompressedAD", false), std::nullopt);
  EXPECT_EQ(options.model, ModelKind::kCompressedAd);
  EXPECT_NE(key("tf_dropout").assign("1.0", false), std::nullopt);
  EXPECT_NE(key("n_transit").assign("1", false), std::nullopt);
  EXPECT_EQ(key("tf_n_inner").assign("128", false), std::nullopt);
  EXPECT_EQ(options.tf_n_inner, 128);
}

}  // namespace
}  // namespace adtrain
