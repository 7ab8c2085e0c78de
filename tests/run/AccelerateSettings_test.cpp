#include "run/AccelerateSettings.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class AccelerateSettings : public testing::Test {
 protected:
  /// The remarks on a configuration under these variables.
  std::vector<std::string> take(const std::string& yaml,
                                const std::map<std::string, std::string>& variables) {
    write_file_atomically(folder_.path() / "run.yaml", yaml);
    document_ = Document();
    document_.read_file(folder_.path() / "run.yaml");
    return take_accelerate_settings(document_, [&](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  }
  /// "none" where the key is not there.
  std::string value(const std::string& key) const {
    const Entry* const entry = document_.find(key);
    return entry == nullptr ? "none" : entry->text;
  }

  TemporaryFolder folder_;
  Document document_;
};

TEST_F(AccelerateSettings, AreTakenWhereTheFileIsSilent) {
  EXPECT_THAT(take("seed: 1\n", {{"ACCELERATE_MIXED_PRECISION", "bf16"},
                                 {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"},
                                 {"ACCELERATE_GRADIENT_CLIPPING", "0.5"},
                                 {"ACCELERATE_USE_CPU", "True"}}),
              ElementsAre(HasSubstr("mixed_precision: bf16 is what accelerate asks for"),
                          HasSubstr("gradient_accumulation_steps: 4"), HasSubstr("max_grad_norm: 0.5"),
                          HasSubstr("device: cpu")));
  EXPECT_EQ(value("mixed_precision"), "bf16");
  EXPECT_EQ(value("gradient_accumulation_steps"), "4");
  EXPECT_EQ(value("max_grad_norm"), "0.5");
  EXPECT_EQ(value("device"), "cpu");
  EXPECT_EQ(document_.find("mixed_precision")->origin.text(), "ACCELERATE_MIXED_PRECISION");
}

TEST_F(AccelerateSettings, YieldToTheFileWithAWord) {
  EXPECT_THAT(
      take("mixed_precision: bf16\ngrad_clip: 1.0\ndevice: cuda\n", {{"ACCELERATE_MIXED_PRECISION", "fp16"},
                                                                     {"ACCELERATE_GRADIENT_CLIPPING", "0.5"},
                                                                     {"ACCELERATE_USE_CPU", "1"}}),
      ElementsAre(AllOf(HasSubstr("run.yaml:1: mixed_precision: bf16 counts"),
                        HasSubstr("ACCELERATE_MIXED_PRECISION=fp16")),
                  HasSubstr("grad_clip: 1.0 counts"), HasSubstr("device: cuda counts")));
  EXPECT_EQ(value("mixed_precision"), "bf16");
  EXPECT_EQ(value("max_grad_norm"), "none");
  EXPECT_EQ(value("device"), "cuda");
}

TEST_F(AccelerateSettings, SayNothingWhereTheyAgreeOrAreAcceleratesOwnDefaults) {
  EXPECT_THAT(take("mixed_precision: BF16\n", {{"ACCELERATE_MIXED_PRECISION", "bf16"}}), IsEmpty());
  EXPECT_THAT(take("mixed_precision: bf16\n", {{"ACCELERATE_MIXED_PRECISION", "no"},
                                               {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "1"},
                                               {"ACCELERATE_GRADIENT_CLIPPING", "none"},
                                               {"ACCELERATE_USE_CPU", "False"},
                                               {"ACCELERATE_USE_FSDP", "false"}}),
              IsEmpty());
  EXPECT_THAT(
      take("max_grad_norm: 1\ngradient_accumulation_steps: 4.0\n",
           {{"ACCELERATE_GRADIENT_CLIPPING", "1.0"}, {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"}}),
      IsEmpty());
  EXPECT_THAT(take("seed: 1\n", {}), IsEmpty());
  EXPECT_EQ(value("mixed_precision"), "none");
}

TEST_F(AccelerateSettings, AreComparedWithTheNameThatCounts) {
  write_file_atomically(folder_.path() / "base.yaml", "max_grad_norm: 0.5\n");
  EXPECT_THAT(take("include: base.yaml\ngrad_clip: 2\n", {{"ACCELERATE_GRADIENT_CLIPPING", "0.5"}}),
              ElementsAre(HasSubstr("run.yaml:2: grad_clip: 2 counts")));
}

TEST_F(AccelerateSettings, DecideADeviceThatTheFileLeavesOpen) {
  EXPECT_THAT(take("device: auto\n", {{"ACCELERATE_USE_CPU", "yes"}}),
              ElementsAre(HasSubstr("run.yaml:1: device: cpu")));
  EXPECT_EQ(value("device"), "cpu");
  EXPECT_THAT(take("device: cpu\n", {{"ACCELERATE_USE_CPU", "yes"}}), IsEmpty());
}

TEST_F(AccelerateSettings, SayWhatHasNoCounterpart) {
  EXPECT_THAT(
      take("seed: 1\n", {{"ACCELERATE_USE_FSDP", "true"}}),
      ElementsAre(HasSubstr("accelerate asks for FSDP (ACCELERATE_USE_FSDP), which is not there yet")));
}

}  // namespace
}  // namespace adtrain
