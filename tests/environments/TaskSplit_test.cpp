#include "environments/TaskSplit.h"

#include <random>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environments/TaskFamily.h"
#include "support/FreshSeed.h"
#include "support/Process.h"

namespace adtrain {
namespace {

using testing::ElementsAre;

TaskSplit published_split(const std::string& env) {
  EnvironmentOptions options;
  options.env = env;
  return TaskSplit::of(options, TaskFamily::of(options).task_count(), TaskOptions());
}

std::vector<int64_t> first(const std::vector<int64_t>& values, std::ptrdiff_t count) {
  return {values.begin(), values.begin() + count};
}

TEST(TaskSplit, IsThePublishedOneOfEachFamily) {
  const TaskSplit darkroom = published_split("darkroom");
  EXPECT_THAT(darkroom.test, ElementsAre(38, 51, 62, 65, 33, 5, 53, 49));
  EXPECT_THAT(first(darkroom.train, 5), ElementsAre(24, 48, 26, 75, 9));

  const TaskSplit permuted = published_split("darkroompermuted");
  EXPECT_THAT(permuted.test, ElementsAre(70, 51, 2, 8, 11, 19, 61, 50, 92, 13, 38, 30));
  EXPECT_THAT(first(permuted.train, 5), ElementsAre(48, 25, 45, 83, 32));

  const TaskSplit key_to_door = published_split("darkkeytodoor");
  EXPECT_EQ(key_to_door.test.size(), 328);
  EXPECT_THAT(first(key_to_door.test, 5), ElementsAre(3406, 3554, 4198, 2997, 5086));
  EXPECT_THAT(first(key_to_door.train, 5), ElementsAre(558, 2586, 14, 4356, 890));
}

TEST(TaskSplit, ATasksSideDoesNotDependOnWhichOthersThereAre) {
  const TaskOptions some{.tasks = "0,3,9,24,38,62", .train_tasks = {}};
  const TaskSplit split = TaskSplit::of(EnvironmentOptions(), 81, some);
  EXPECT_THAT(split.test, ElementsAre(38, 62));
  EXPECT_THAT(split.train, testing::UnorderedElementsAre(0, 3, 9, 24));
  EXPECT_EQ(split.train.front(), 24) << "the order of the shuffle";
}

TEST(TaskSplit, TasksThatAreNamedAreTrainedOnAndAllOthersHeldOut) {
  const TaskSplit split = TaskSplit::of(EnvironmentOptions(), 81, {.tasks = "0-5", .train_tasks = "1,5"});
  EXPECT_THAT(split.train, testing::UnorderedElementsAre(1, 5));
  EXPECT_THAT(split.test, testing::UnorderedElementsAre(0, 2, 3, 4));
  const TaskSplit of_all = TaskSplit::of(EnvironmentOptions(), 81, {.tasks = {}, .train_tasks = "0-79"});
  EXPECT_EQ(of_all.train.size(), 80);
  EXPECT_THAT(of_all.test, ElementsAre(80));
}

TEST(TaskSplit, EqualsARealPythonsForFreshSeedsRatiosAndSizes) {
  std::mt19937_64 random(fresh_seed());
  std::vector<EnvironmentOptions> cases(40);
  std::vector<int64_t> sizes;
  std::string program =
      "import random\ndef split(seed, n, ratio):\n"
      "  random.seed(seed); order = list(range(n)); random.shuffle(order)\n"
      "  print(round(n * ratio), *order)\n";
  for (EnvironmentOptions& options : cases) {
    options.env_split_seed = static_cast<int64_t>(random() >> (1 + random() % 60));
    // Every other ratio puts n · ratio on a half for odd n, where Python rounds to even.
    options.train_env_ratio = sizes.size() % 2 == 0 ? 0.5 : static_cast<double>(1 + random() % 1000) / 1000;
    sizes.push_back(static_cast<int64_t>(2 + random() % 2000));
    program +=
        fmt::format("split({}, {}, {})\n", *options.env_split_seed, sizes.back(), *options.train_env_ratio);
  }
  const Finished python = run_shell(quoted(ADTRAIN_PYTHON) + " -c " + adtrain::quoted(program));
  ASSERT_EQ(python.exit_code, 0) << python.output;

  std::istringstream lines(python.output);
  for (size_t i = 0; i < cases.size(); ++i) {
    const TaskSplit split = TaskSplit::of(cases[i], sizes[i], TaskOptions());
    size_t trained = 0;
    lines >> trained;
    EXPECT_EQ(split.train.size(), trained) << sizes[i] << " × " << *cases[i].train_env_ratio;
    std::vector<int64_t> joined = split.train, order(static_cast<size_t>(sizes[i]));
    joined.insert(joined.end(), split.test.begin(), split.test.end());
    for (int64_t& task : order) lines >> task;
    EXPECT_EQ(joined, order);
  }
}

}  // namespace
}  // namespace adtrain
