#include "selftest/StepCheck.h"

#include <cmath>

#include <gmock/gmock.h>

#include "collectives/SingleCommunicator.h"

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunConfig small_config() {
  RunConfig config;
  config.model.tf_n_layer = 1;
  config.model.n_transit = 16;
  config.training.train_batch_size = 4;
  config.data.train_source_timesteps = 100;
  config.data.num_workers = 0;
  return config;
}

StepFigures good_figures() {
  StepFigures figures;
  figures.loss = 1.6;
  figures.updated = true;
  figures.checksums = {"aa", "aa", "aa"};
  return figures;
}

TEST(StepCheck, AStepUpdatesTheParameters) {
  SingleCommunicator alone;
  const StepFigures figures = check_step(small_config(), alone);
  EXPECT_THAT(figures.faults(), IsEmpty());
  EXPECT_TRUE(std::isfinite(figures.loss));
  EXPECT_GT(figures.parameters, 0);
}

TEST(StepCheck, TheSameStepHasTheSameChecksum) {
  SingleCommunicator alone;
  RunConfig config = small_config();
  const StepFigures first = check_step(config, alone);
  EXPECT_EQ(check_step(config, alone).checksums, first.checksums);
  config.training.lr *= 2;
  EXPECT_NE(check_step(config, alone).checksums, first.checksums);
}

TEST(StepCheck, AStepThatChangesNothingIsAFault) {
  SingleCommunicator alone;
  RunConfig config = small_config();
  config.training.lr = 0;
  EXPECT_THAT(check_step(config, alone).faults(), ElementsAre(HasSubstr("left the parameters as they were")));
}

TEST(StepCheck, RanksThatDifferAreShown) {
  StepFigures figures = good_figures();
  EXPECT_THAT(figures.faults(), IsEmpty());
  figures.checksums[2] = "bb";
  EXPECT_THAT(
      figures.faults(),
      ElementsAre("the updated parameters differ between ranks: aa on rank 0, aa on rank 1, bb on rank 2"));
  figures.loss = std::nan("");
  EXPECT_THAT(figures.faults(), ElementsAre(HasSubstr("differ"), HasSubstr("not a finite number")));
}

}  // namespace
}  // namespace adtrain
