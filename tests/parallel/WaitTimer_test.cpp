#include "parallel/WaitTimer.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace adtrain {
namespace {

void wait_for(WaitTimer& timer, int milliseconds) {
  timer.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  timer.end();
}

TEST(WaitTimer, OnTheCpuTheMeanIsOfAllPairsSinceItWasTaken) {
  WaitTimer timer(at::kCPU);
  EXPECT_EQ(timer.take_mean_seconds(), 0);
  wait_for(timer, 300);
  wait_for(timer, 0);
  wait_for(timer, 0);
  const double mean = timer.take_mean_seconds();
  EXPECT_GE(mean, 0.1);
  EXPECT_GT(mean, timer.seconds()) << "which is of the latest pair";
  EXPECT_EQ(timer.take_mean_seconds(), 0);
}

}  // namespace
}  // namespace adtrain
