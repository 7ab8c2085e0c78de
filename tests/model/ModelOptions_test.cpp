#include "model/ModelOptions.h"

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

TEST(ModelOptions, WorldModelsAreRefused) {
  ModelOptions options;
  options.dynamics = true;
  EXPECT_THAT(only_finding(options), HasSubstr("dynamics: found true"));
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
