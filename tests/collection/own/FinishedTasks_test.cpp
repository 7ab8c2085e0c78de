#include "collection/own/FinishedTasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

WorkerHello without_tasks() {
  return {Space::discrete(2), Space::discrete(2), /*tasks=*/{}, /*versions=*/""};
}

WorkerHello with_tasks(const std::vector<std::string>& tasks) {
  WorkerHello hello = without_tasks();
  hello.tasks = tasks;
  return hello;
}

TEST(FinishedTasks, AreTheSameWhereTheEnvironmentsCallThemSo) {
  const FinishedTasks finished = {{0, {"low", {}}}, {2, {"high", {}}}};
  EXPECT_THAT(renamed(finished, with_tasks({"low", "other", "high", "new"})), IsEmpty());
  EXPECT_THAT(renamed(finished, with_tasks({"low", "high"})),
              ElementsAre("task 2 was 'high' and is not there"));
  EXPECT_THAT(renamed(finished, with_tasks({"new", "low", "high"})),
              ElementsAre("task 0 was 'low' and is 'new'"));
  EXPECT_THAT(renamed(finished, without_tasks()),
              ElementsAre("task 0 was 'low' and is '0'", "task 2 was 'high' and is '2'"));
}

TEST(FinishedTasks, OnesWithoutANameAreCalledByTheirNumbers) {
  const FinishedTasks finished = {{0, {}}, {3, {}}};
  EXPECT_THAT(renamed(finished, without_tasks()), IsEmpty());
  EXPECT_THAT(renamed(finished, with_tasks({"0", "1", "2", "3"})), IsEmpty());
  EXPECT_THAT(renamed({{3, {"3", {}}}}, without_tasks()), IsEmpty());
  EXPECT_THAT(renamed(finished, with_tasks({"0", "1", "2", "last"})),
              ElementsAre("task 3 was '3' and is 'last'"));
}

}  // namespace
}  // namespace adtrain
