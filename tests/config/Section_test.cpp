#include "config/Section.h"

#include <stdexcept>

#include <gtest/gtest.h>

#include "config/SampleOptions.h"

namespace adtrain {
namespace {

struct Sample : SampleOptions {
  Sample() { declare(section); }
  Sample(const Sample&) = delete;  // the section points into this object
  Sample& operator=(const Sample&) = delete;

  Key& key(const std::string& name) {
    for (Key& key : section.keys()) {
      if (key.name() == name) return key;
    }
    throw std::out_of_range(name);
  }

  /// What assigning the scalar is answered with; "" where it was accepted.
  std::string fault(const std::string& name, const std::string& scalar) {
    return key(name).assign(scalar, false).value_or("");
  }
  std::string fault_of_null(const std::string& name) { return key(name).assign("", true).value_or(""); }

  Section section{"Sample"};
};

TEST(Section, StoresEveryKindOfValue) {
  Sample sample;
  EXPECT_EQ(sample.fault("steps", "1e3"), "");
  EXPECT_EQ(sample.fault("rate", "1e-3"), "");
  EXPECT_EQ(sample.fault("masked", "Yes"), "");
  EXPECT_EQ(sample.fault("folder", "elsewhere"), "");
  EXPECT_EQ(sample.fault("block", "Post_Norm"), "");
  EXPECT_EQ(sample.fault("horizon", "50"), "");
  EXPECT_EQ(sample.fault("clip", "0.5"), "");
  EXPECT_EQ(sample.fault("resume", "LATEST"), "");
  EXPECT_EQ(sample.steps, 1000);
  EXPECT_EQ(sample.rate, 1e-3);
  EXPECT_TRUE(sample.masked);
  EXPECT_EQ(sample.folder, "elsewhere");
  EXPECT_EQ(sample.block, Block::kPostNorm);
  EXPECT_EQ(sample.horizon, 50);
  EXPECT_EQ(sample.clip, 0.5);
  EXPECT_EQ(sample.resume, "latest");
}

TEST(Section, NullEmptiesOptionalKeysAndIsRefusedByTheRest) {
  Sample sample;
  sample.horizon = 20;
  EXPECT_EQ(sample.fault_of_null("horizon"), "");
  EXPECT_EQ(sample.horizon, std::nullopt);
  EXPECT_EQ(sample.fault_of_null("steps"),
            "found null; expected a whole number of steps, at least 1 and at most 1000000");
  EXPECT_EQ(sample.fault_of_null("block"), "found null; expected pre_norm or post_norm");
  EXPECT_EQ(sample.steps, 100);
}

TEST(Section, RefusesWrongTypesAndLeavesTheMember) {
  Sample sample;
  EXPECT_EQ(sample.fault("steps", "many"),
            "found 'many'; expected a whole number of steps, at least 1 and at most 1000000");
  EXPECT_EQ(sample.fault("steps", "1.5"),
            "found '1.5'; expected a whole number of steps, at least 1 and at most 1000000");
  EXPECT_EQ(sample.fault("rate", "fast"), "found 'fast'; expected a number, above 0 and below 1");
  EXPECT_EQ(sample.fault("masked", "1"), "found '1'; expected true or false");
  EXPECT_EQ(sample.fault("horizon", "x"), "found 'x'; expected a whole number of steps, at least 1, or null");
  EXPECT_EQ(sample.steps, 100);
  EXPECT_EQ(sample.rate, 3e-4);
  EXPECT_EQ(sample.horizon, std::nullopt);
}

TEST(Section, BoundsAreInclusiveOrExclusiveAsDeclared) {
  Sample sample;
  for (const char* good : {"1", "1000000"}) EXPECT_EQ(sample.fault("steps", good), "") << good;
  for (const char* bad : {"0", "1000001", "-5"}) EXPECT_NE(sample.fault("steps", bad), "") << bad;
  for (const char* good : {"1e-9", "0.999"}) EXPECT_EQ(sample.fault("rate", good), "") << good;
  for (const char* bad : {"0", "1", "-0.1", "1.5"}) EXPECT_NE(sample.fault("rate", bad), "") << bad;
}

TEST(Section, NamesTheNearestChoice) {
  Sample sample;
  EXPECT_EQ(sample.fault("block", "prenorm"),
            "found 'prenorm'; expected pre_norm or post_norm; did you mean pre_norm?");
  EXPECT_EQ(sample.fault("resume", "newest"), "found 'newest'; expected latest or best, or null");
}

TEST(Section, WritesCurrentValuesAndRemembersDefaults) {
  Sample sample;
  sample.steps = 7;
  sample.block = Block::kPostNorm;
  sample.folder = "no";
  EXPECT_EQ(sample.key("steps").value_text(), "7");
  EXPECT_EQ(sample.key("steps").default_text(), "100");
  EXPECT_EQ(sample.key("block").value_text(), "post_norm");
  EXPECT_EQ(sample.key("block").default_text(), "pre_norm");
  EXPECT_EQ(sample.key("folder").value_text(), "\"no\"");
  EXPECT_EQ(sample.key("horizon").value_text(), "null");
}

TEST(Section, AWordMayStandForANumber) {
  int64_t batch = 512;
  Section section("Sample");
  section.key("batch", batch, "Rows.").at_least(1).or_word("auto_batch_size", 0);
  Key& key = section.keys().front();
  EXPECT_EQ(key.allowed(), "a whole number, at least 1, or auto_batch_size");
  EXPECT_EQ(key.assign("Auto_Batch_Size", false), std::nullopt);
  EXPECT_EQ(batch, 0);
  EXPECT_EQ(key.value_text(), "auto_batch_size");
  EXPECT_TRUE(key.assign("0", false)) << "the number itself is out of bounds";
  EXPECT_NE(key.assign("auto_batchsize", false)->find("did you mean auto_batch_size"), std::string::npos);
  EXPECT_EQ(key.assign("7", false), std::nullopt);
  EXPECT_EQ(key.value_text(), "7");
}

TEST(Section, AWordMayBeTheDefaultAndHaveSynonyms) {
  int64_t batch = 0;
  Section section("Sample");
  section.key("batch", batch, "Rows.").at_least(1).or_word("auto", 0, {"auto_batch_size"});
  Key& key = section.keys().front();
  EXPECT_EQ(key.default_text(), "auto");
  EXPECT_EQ(key.allowed(), "a whole number, at least 1, or auto");
  EXPECT_EQ(key.assign("7", false), std::nullopt);
  EXPECT_EQ(key.assign("auto_batch_size", false), std::nullopt);
  EXPECT_EQ(batch, 0);
  EXPECT_EQ(key.value_text(), "auto");
}

}  // namespace
}  // namespace adtrain
