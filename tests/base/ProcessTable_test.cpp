#include "base/ProcessTable.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace adtrain {
namespace {

TEST(ProcessTable, KnowsThisProcess) {
  const auto status = status_of_process(getpid());
  ASSERT_TRUE(status);
  EXPECT_EQ('R', status->state);
  EXPECT_EQ(getppid(), status->parent);
  EXPECT_EQ(environment_of_process(getpid()).count("PATH"), 1);
  EXPECT_THAT(processes_of_this_user(), testing::Contains(getpid()));
}

TEST(ProcessTable, WhoIsNotThereHasNoStatus) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(child, waitpid(child, nullptr, 0));
  EXPECT_FALSE(status_of_process(child));
  EXPECT_TRUE(environment_of_process(child).empty());
}

/// Its file may be open already when the process goes: reading fails then (ESRCH).
TEST(ProcessTable, AProcessMayEndWhileItIsLookedAt) {
  std::atomic<pid_t> child = 0;
  std::atomic<bool> ends = false;
  std::thread looks([&] {
    while (!ends) {
      if (child == 0) continue;
      status_of_process(child);
      environment_of_process(child);
    }
  });
  for (int round = 0; round < 500; ++round) {
    const pid_t started = fork();
    if (started == 0) _exit(0);
    child = started;
    waitpid(started, nullptr, 0);
  }
  ends = true;
  looks.join();
}

}  // namespace
}  // namespace adtrain
