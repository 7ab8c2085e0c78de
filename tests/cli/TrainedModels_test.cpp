#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "SmallRun.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// The figures of models/darkroom/README.md, from a copy, as an evaluation writes beside the checkpoint.
TEST(TrainedModels, DarkroomLearnsUnseenGoalsAsItsCardSays) {
  const SmallRun small;
  fs::copy(fs::path(ADTRAIN_SOURCE_DIR) / "models/darkroom", small.folder() / "darkroom",
           fs::copy_options::recursive);
  const Finished evaluated = small.adtrain("evaluate darkroom --set device=cpu --set eval_repeats=2");
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  const auto summary = nlohmann::json::parse(small.read("darkroom/evaluation/summary.json"));
  EXPECT_LT(summary["mean"][0].get<double>(), 3);
  EXPECT_NEAR(summary["last10_mean"].get<double>(), 15.53, 1.5);  // two repeats for sixteen
}

}  // namespace
}  // namespace adtrain
