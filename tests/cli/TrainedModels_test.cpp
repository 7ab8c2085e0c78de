#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "SmallRun.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

struct Card {
  std::string model;
  std::string settings;  ///< that make the evaluation short
  double last_ten;       ///< mean return of the last ten episodes, as the model's README.md says
  double tolerance;      ///< as fewer repeats, or episodes, are averaged here
};

class TrainedModels : public ::testing::TestWithParam<Card> {};

/// From a copy, as an evaluation writes beside the checkpoint.
TEST_P(TrainedModels, LearnUnseenTasksAsTheirCardsSay) {
  const Card& card = GetParam();
  const SmallRun small;
  fs::copy(fs::path(ADTRAIN_SOURCE_DIR) / "models" / card.model, small.folder() / card.model,
           fs::copy_options::recursive);
  const Finished evaluated = small.adtrain("evaluate " + card.model + " --set device=cpu " + card.settings);
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  const auto summary = nlohmann::json::parse(small.read(card.model + "/evaluation/latest/summary.json"));
  EXPECT_LT(summary["mean"][0].get<double>(), card.last_ten / 4);
  EXPECT_NEAR(summary["last10_mean"].get<double>(), card.last_ten, card.tolerance);
}

INSTANTIATE_TEST_SUITE_P(Cards, TrainedModels,
                         ::testing::Values(Card{"darkroom", "--set eval_repeats=2", 15.69, 1.5},
                                           Card{"permuted", "--set eval_repeats=1 --set eval_episodes=24",
                                                33.52, 2.0}),
                         [](const auto& tested) { return tested.param.model; });

}  // namespace
}  // namespace adtrain
