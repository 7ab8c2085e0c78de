#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "data/HistoryFile.h"
#include "environments/TaskSplit.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kFile = "histories/history_darkroom_PPO_alg-seed1.hdf5";

/// small.yaml's: 20 tasks that are trained on, and 5 that are held out.
TaskSplit small_split() {
  EnvironmentOptions options;
  options.grid_size = 5;
  options.train_env_ratio = 0.8;
  return TaskSplit::of(options, 25, TaskOptions());
}

std::string listed(const std::vector<int64_t>& tasks) {
  return NumberRanges::of(tasks).text();
}

TEST(Tasks, SomeAreCollectedTrainedOnAndEvaluated) {
  const SmallRun small;
  const TaskSplit split = small_split();
  small.write("goals.txt", "# two of each side\n" + std::to_string(split.train[0]) + "\n" +
                               std::to_string(split.train[1]) + "\n" +
                               listed({split.test[0], split.test[1]}) + "\n");
  const Finished collected = small.adtrain("collect small.yaml --set tasks=goals.txt");
  ASSERT_EQ(collected.exit_code, 0) << collected.output;
  const std::string held = listed({split.train[0], split.train[1], split.test[0], split.test[1]});
  EXPECT_THAT(collected.output, HasSubstr("4 of darkroom: " + held));
  EXPECT_EQ(HistoryFile(small.folder() / kFile).tasks().text(), held);

  const Finished named = small.adtrain("small.yaml --set tasks=goals.txt");
  ASSERT_EQ(named.exit_code, 0) << named.output;
  EXPECT_THAT(named.output, AllOf(HasSubstr("of 20 histories"), Not(HasSubstr("lacks"))));
  EXPECT_THAT(small.read("runs/small/config.yaml"), HasSubstr("tasks: \"" + held + "\""));

  // The split of all tasks is the same, and the file's part of it is trained on.
  const Finished of_all = small.adtrain("small.yaml --set run_name=all");
  ASSERT_EQ(of_all.exit_code, 0) << of_all.output;
  EXPECT_THAT(of_all.output, AllOf(HasSubstr("training has 2 of 20"), HasSubstr("held-out loss 2 of 5"),
                                   HasSubstr(listed({split.test[2], split.test[3], split.test[4]}))));
  EXPECT_EQ(small.metrics("all", "loss").back().at("loss"), small.metrics("small", "loss").back().at("loss"));

  const Finished evaluated =
      small.adtrain("evaluate runs/small --json --set eval_tasks=[3-5,20] 2>/dev/null");
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  EXPECT_EQ(nlohmann::json::parse(evaluated.output).at("tasks"), (std::vector<int64_t>{3, 4, 5, 20}));
  const Finished sides = small.adtrain("evaluate runs/small --json --set eval_tasks=all 2>/dev/null");
  EXPECT_EQ(listed(nlohmann::json::parse(sides.output).at("tasks").get<std::vector<int64_t>>()), held);
}

TEST(Tasks, AFileWithOneSideOfTheSplitSaysWhatItHasAndWhatIsMissing) {
  const SmallRun small;
  const TaskSplit split = small_split();
  const std::string trained = listed({split.train[0], split.train[3]});
  ASSERT_EQ(small.adtrain("collect small.yaml --set tasks=" + trained).exit_code, 0);
  const Finished without_held_out = small.adtrain("small.yaml");
  EXPECT_EQ(without_held_out.exit_code, 4) << without_held_out.output;
  EXPECT_THAT(without_held_out.output,
              AllOf(HasSubstr(std::string(kFile) + " holds the tasks " + trained),
                    HasSubstr("holds out, which are " + listed(split.test)), HasSubstr("eval_interval: 0")));
  EXPECT_EQ(small.adtrain("small.yaml --set eval_interval=0").exit_code, 0);

  const Finished more = small.adtrain("collect small.yaml");
  EXPECT_EQ(more.exit_code, 4) << more.output;
  EXPECT_THAT(more.output, AllOf(HasSubstr("holds the tasks " + trained), HasSubstr("--overwrite")));
  const std::string held_out = listed(split.test);
  ASSERT_EQ(small.adtrain("collect small.yaml --overwrite --set tasks=" + held_out).exit_code, 0);
  const Finished without_training = small.adtrain("small.yaml --overwrite");
  EXPECT_EQ(without_training.exit_code, 4) << without_training.output;
  EXPECT_THAT(without_training.output,
              AllOf(HasSubstr("holds the tasks " + held_out),
                    HasSubstr("trains on, which are " + listed(split.train)), HasSubstr("train_tasks")));
  const Finished named =
      small.adtrain("small.yaml --overwrite --set train_tasks=" + listed({split.test[0], split.train[0]}));
  EXPECT_EQ(named.exit_code, 4) << named.output;
  EXPECT_THAT(named.output, HasSubstr("train_tasks names " + std::to_string(split.train[0]) + ","));
}

TEST(Tasks, ARunIsContinuedWithItsOwn) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --set train_tasks=0-9 --stop-after 10").exit_code, 75);
  const Finished other = small.adtrain("small.yaml --resume --set train_tasks=0-10");
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_THAT(other.output, AllOf(HasSubstr("train_tasks: \"0-9\" in the run, \"0-10\" now"),
                                  HasSubstr("--allow-changes")));
  const Finished fewer = small.adtrain("small.yaml --resume --set train_tasks=0-9 --set tasks=0-20");
  EXPECT_EQ(fewer.exit_code, 2) << fewer.output;
  EXPECT_THAT(fewer.output, HasSubstr("tasks: null in the run, \"0-20\" now"));
  EXPECT_EQ(small.adtrain("small.yaml --resume --set train_tasks=9,0-8 --set eval_tasks=3").exit_code, 0)
      << "the same tasks";
}

TEST(Tasks, AMistakeIsOneOfTheConfiguration) {
  const SmallRun small;
  const Finished finished = small.adtrain("validate small.yaml --set tasks=0..9 --set train_env_ratio=2");
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("tasks: found '0..9'"), HasSubstr("train_env_ratio: found '2'")));
  const Finished none = small.adtrain("small.yaml --set train_env_ratio=0.001");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.output, HasSubstr("train_env_ratio: found 0.001, which is none of the 25 tasks"));
  const Finished held_out = small.adtrain("small.yaml --set tasks=" + listed(small_split().test));
  EXPECT_EQ(held_out.exit_code, 2);
  EXPECT_THAT(held_out.output, HasSubstr("the split has no task to train on"));
  EXPECT_THAT(small.adtrain("validate small.yaml --set tasks=0-9").output,
              HasSubstr("# tasks: 10 of darkroom's 25, "));
}

}  // namespace
}  // namespace adtrain
