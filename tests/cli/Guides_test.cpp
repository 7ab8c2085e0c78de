#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Guides, TheirVerificationStepsFindTheirLines) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished two = small.mpirun(2, "small.yaml");
  ASSERT_EQ(two.exit_code, 0) << two.output;
  EXPECT_THAT(two.output, AllOf(HasSubstr("\nNumber of processes: 2\n"),
                                HasSubstr("\nDistributed type: MULTI_CPU\n"), HasSubstr("\nDevice: cpu\n")));
  const Finished alone = small.adtrain("small.yaml --set run_name=alone");
  ASSERT_EQ(alone.exit_code, 0) << alone.output;
  EXPECT_THAT(alone.output,
              AllOf(HasSubstr("\nNumber of processes: 1\n"), HasSubstr("\nDistributed type: NO\n")));
}

TEST(Guides, TheirFilesTrainOrSayWhatIsNotThere) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::string experiment = "include: small.yaml\nexperiment:\n  name: guide\n  learning_rate: 0.001\n";
  small.write("guide.yaml", experiment + "model_loading:\n  device_map: auto\n  load_in_8bit: false\n");
  const Finished trained = small.adtrain("guide.yaml");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("in training every rank holds the whole model"));
  EXPECT_THAT(small.read("runs/guide/config.yaml"), HasSubstr("\nlr: 0.001\n"));
  small.write("guide.yaml", experiment + "model_loading:\n  load_in_8bit: true\n");
  const Finished refused = small.adtrain("guide.yaml");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output,
              HasSubstr("guide.yaml:6: load_in_8bit: found true, and quantised weights do not train"));
}

TEST(Guides, TheirMisspeltKeysHaveANearestName) {
  const SmallRun small;
  small.write("guide.yaml",
              "include: small.yaml\nexperiment: {learning_rat: 0.1}\ntraining: {max_stepz: 10}\n");
  const Finished refused = small.adtrain("validate guide.yaml");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(
      refused.output,
      AllOf(HasSubstr("guide.yaml:2: experiment.learning_rat"), HasSubstr("did you mean learning_rate?"),
            HasSubstr("guide.yaml:3: training.max_stepz"), HasSubstr("did you mean max_steps?")));
}

TEST(Guides, TheCommandLineOverridesTheirMaps) {
  const SmallRun small;
  small.write(
      "guide.yaml",
      "include: small.yaml\ntraining:\n  max_grad_norm: 0.5\nmodel_loading:\n  torch_dtype: float32\n");
  const Finished valid = small.adtrain("validate guide.yaml --set grad_clip=0.75 --set mixed_precision=bf16");
  ASSERT_EQ(valid.exit_code, 0) << valid.output;
  EXPECT_THAT(valid.output,
              AllOf(HasSubstr("\nmax_grad_norm: 0.75\n"), HasSubstr("\nmixed_precision: bf16\n")));
}

TEST(Guides, TheRecommendationsByNumberOfGpusAreValid) {
  const SmallRun small;
  for (const std::string gpus : {"2", "4", "8"}) {
    const Finished valid = small.adtrain("validate " ADTRAIN_SOURCE_DIR "/configs/gpus/" + gpus + ".yaml");
    EXPECT_EQ(valid.exit_code, 0) << valid.output;
    EXPECT_THAT(valid.output, HasSubstr("mixed_precision: bf16"));
  }
}

}  // namespace
}  // namespace adtrain
