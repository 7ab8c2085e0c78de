#include "base/CpuTimes.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

#include "base/Clock.h"

namespace adtrain {
namespace {

void compute_for(double seconds) {
  const Stopwatch watch;
  while (watch.seconds() < seconds) {
  }
}

TEST(CpuTimes, ASleepingThreadIsOnNoCore) {
  const CpuTimes before = CpuTimes::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const CpuUse use = before.until(CpuTimes::now());
  EXPECT_GE(use.seconds, 0.2);
  EXPECT_LT(use.on_core, 0.1);
}

TEST(CpuTimes, OnlyTheThreadThatAsksCounts) {
  const CpuTimes before = CpuTimes::now();
  std::thread other([] { compute_for(0.2); });
  other.join();
  EXPECT_LT(before.until(CpuTimes::now()).on_core, 0.1);
  compute_for(0.2);
  EXPECT_GT(before.until(CpuTimes::now()).on_core, 0.005) << "on however busy a machine";
}

/// Two threads that want the same core get half of it each.
TEST(CpuTimes, AThreadWithoutACoreIsSeen) {
  const CpuTimes before = CpuTimes::now();
  if (!before.until(before).without_core) GTEST_SKIP() << "this kernel does not count it";
  cpu_set_t allowed, first;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  CPU_ZERO(&first);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&first) == 0; ++core) {
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &first);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof first, &first), 0);
  std::atomic<bool> done = false;
  std::thread other([&] {  // on the same core, as it inherits that
    while (!done) {
    }
  });
  compute_for(1);
  const CpuUse use = before.until(CpuTimes::now());
  done = true;
  other.join();
  ASSERT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_GT(use.without_core.value(), 0.25);
}

}  // namespace
}  // namespace adtrain
