#include "data/TaskScaling.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "data/MemoryHistories.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

TEST(TaskScaling, IsKeptAsItIs) {
  TaskScale ant{"ant_v4", 3, true, 0.1, 1000, {0.1, -2e-17}, {1.5, 1e-6}};
  TaskScale door{"door", 4, true, 1, 3000, {1.1, 4}, {0.5, 2}};
  TaskScale held{"held", 5, false, 3, 500, {9, 9}, {9, 9}};
  const std::string text = TaskScaling({ant, door, held}).to_json();
  const TaskScaling read = TaskScaling::from_json(text, "tasks.json");
  EXPECT_EQ(read.to_json(), text);
  EXPECT_EQ(read.of("ant_v4", 7).mean, ant.mean);
  EXPECT_FALSE(read.of("held", 7).trained);
  EXPECT_EQ(read.of("held", 7).reward_scale, 3);
  EXPECT_EQ(read.of("held", 7).mean, read.of("hopper", 7).mean) << "training did not see it";
  const TaskScale unseen = read.of("hopper", 7);
  EXPECT_EQ(unseen.reward_scale, 7);
  EXPECT_NEAR(unseen.mean[0], (0.1 * 1000 + 1.1 * 3000) / 4000, 1e-12);
  // The deviation of 1000 and 3000 numbers with these means and deviations.
  EXPECT_NEAR(unseen.deviation[0],
              std::sqrt((999 * 1.5 * 1.5 + 2999 * 0.25 + 1000 * 0.75 * 0.75 + 3000 * 0.25 * 0.25) / 3999),
              1e-5);
  EXPECT_TRUE(TaskScaling().of("any", 1).mean.empty());
}

TEST(TaskScaling, KnowsScoresWhereTheDataSayThem) {
  TaskScale ant{"ant", 0, true, 1, 0, {}, {}};
  ant.random_score = -60.5;
  TaskScale door{"door", TaskScale::kNoNumber, false, 0.5, 0, {}, {}, "arms"};
  door.expert_score = 7;
  const std::string text = TaskScaling({ant, door}).to_json();
  const TaskScaling read = TaskScaling::from_json(text, "tasks.json");
  EXPECT_EQ(read.to_json(), text);
  EXPECT_EQ(read.of("ant", 2).random_score, -60.5);
  EXPECT_FALSE(read.of("ant", 2).expert_score);
  EXPECT_EQ(read.of("door", 2, "arms").expert_score, 7) << "of a task that training did not see, too";
  EXPECT_EQ(read.of("door", 2, "arms").reward_scale, 0.5);
  EXPECT_FALSE(read.of("door", 2, "legs").expert_score) << "another one";
  EXPECT_EQ(score_of({"a", 0, 0, {{"expert-score", "2.5"}}, {}}, "expert"), 2.5);
  EXPECT_EQ(score_of({"a", 0, 0, {{"random_score", "-3"}}, {}}, "random"), -3);
  EXPECT_FALSE(score_of({"a", 0, 0, {{"random_score", "null"}}, {}}, "random")) << "as NaN is written";
  EXPECT_FALSE(score_of({"a", 0, 0, {}, {}}, "random"));
}

TEST(TaskScaling, ATaskWithoutANameIsFoundByItsNumber) {
  TaskScale unnamed{"task 3", 3, true, 0.5, 10, {7}, {2}};
  unnamed.expert_score = 9;
  const TaskScaling tasks({unnamed, TaskScale{"task 3", 1, true, 1, 10, {1}, {1}, "arms"},
                           TaskScale{"door", TaskScale::kNoNumber, false, 3, 0, {}, {}}});
  EXPECT_EQ(tasks.of("3", 1).expert_score, 9);
  EXPECT_EQ(tasks.of("3", 1).mean, std::vector<double>{7});
  EXPECT_EQ(tasks.of("task 3", 1).reward_scale, 0.5);
  EXPECT_EQ(tasks.find("3", "arms"), nullptr) << "its number is another, so this is its name";
  EXPECT_EQ(tasks.find("03"), nullptr);
  EXPECT_EQ(tasks.find_number(3), tasks.find("3"));
  EXPECT_EQ(tasks.find_number(3, "arms"), nullptr);
  EXPECT_EQ(tasks.find_number(4), nullptr);
  EXPECT_EQ(tasks.of(tasks.find_number(4), 5).reward_scale, 5) << "of a task that is not there";
  const TaskScaling both(
      {TaskScale{"task 3", 3, false, 1, 0, {}, {}}, TaskScale{"3", 0, true, 1, 0, {}, {}}});
  EXPECT_EQ(both.find("3")->number, 0) << "a name goes before a number";
}

TEST(TaskScaling, RefusesWhatTrainingHasNotWritten) {
  std::string text = TaskScaling({TaskScale{"ant", 3, true, 0.1, 1000, {0.1}, {1.5}}}).to_json();
  const auto complaint = [](const std::string& changed) {
    try {
      TaskScaling::from_json(changed, "runs/x/tasks.json");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(complaint(text), "none");
  EXPECT_THAT(complaint(text.substr(0, text.size() / 2)), HasSubstr("runs/x/tasks.json"));
  EXPECT_THAT(complaint("[]"), HasSubstr("restore the file"));
  text[text.find("1.5")] = '2';
  EXPECT_THAT(complaint(text), HasSubstr("checksum"));
}

TEST(TaskScaling, TheDataMayScaleRewards) {
  EXPECT_EQ(reward_scale_of({"a", 0, 0, {{"reward-scale", "0.25"}}, {}}), 0.25);
  EXPECT_EQ(reward_scale_of({"a", 0, 0, {{"reward_scale", "2"}}, {}}), 2);
  EXPECT_EQ(reward_scale_of({"a", 0, 0, {}, {}}), 1);
  EXPECT_THROW(reward_scale_of({"a", 0, 0, {{"reward-scale", "-1"}}, {}}), DataError);
}

TEST(TaskScaling, ANameOnBothSidesTellsNothing) {
  TaskScale walk;
  walk.task = "walk";
  TaskScale other = walk;
  other.number = 1;
  const TaskScaling alike({walk, other});
  EXPECT_EQ(alike.find("walk")->number, 0);
  other.trained = false;
  const TaskScaling apart({walk, other});
  try {
    apart.find("walk");
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("two tasks of the run are called 'walk': it was trained on one"));
  }
  EXPECT_EQ(apart.find("run"), nullptr);
  EXPECT_EQ(apart.find_number(1)->number, 1);
}

TEST(TaskScaling, ScoresAreNumbers) {
  const auto score = [](const std::string& text) {
    return score_of({"a", 0, 0, {{"expert-score", text}}, {}}, "expert");
  };
  EXPECT_EQ(score("12.5"), 12.5);
  EXPECT_FALSE(score("null").has_value()) << "a NaN, as the process that reads HDF5 says it";
  EXPECT_FALSE(score_of({"a", 0, 0, {}, {}}, "random").has_value());
  try {
    score("many");
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a: expert-score is 'many'; expected a number"));
  }
}

TEST(TaskScaling, ObservationsThatAreNotFiniteAreNamed) {
  MemoryHistories source({{ColumnKind::kObservations, ElementType::kFloat32, {}}});
  source.add(0, 10);
  set_number(source.add(0, 30000), ColumnKind::kObservations, 20001, std::numeric_limits<float>::quiet_NaN());
  TaskScale scale;
  try {
    measure_observations(source, 0, scale);
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("task 0: history 1, step 20001"));
  }
}

}  // namespace
}  // namespace adtrain
