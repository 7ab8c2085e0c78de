#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

/// The first steps of the run that needs no collection, called from the repository's root as data/README.md
/// says.
TEST(FromData, TrainsWithoutCollecting) {
  const SmallRun small;
  const Finished trained =
      run_shell("cd " + quoted(ADTRAIN_SOURCE_DIR) +
                " && OMP_NUM_THREADS=1 timeout 120 " ADTRAIN_BINARY_DIR
                "/adtrain configs/from_data.yaml --set device=cpu --set train_timesteps=4 --set "
                "num_warmup_steps=1 --set "
                "summary_interval=1 --set eval_interval=4 --set ckpt_interval=4 --set runs_dir=" +
                quoted((small.folder() / "runs").string()));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("176 histories"));
  EXPECT_EQ(small.metrics("from_data", "loss").size(), 4U);
  EXPECT_EQ(small.metrics("from_data", "test_loss").size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(small.run("from_data") / "checkpoints/step-4/model.safetensors"));
}

}  // namespace
}  // namespace adtrain
