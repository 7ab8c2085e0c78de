#include "launch/StopSignals.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace adtrain {
namespace {

TEST(StopSignals, OnlyALaterOneInsists) {
  StopSignals signals;
  EXPECT_FALSE(signals.insists());
  EXPECT_FALSE(signals.insists()) << "the same request";
  usleep(static_cast<useconds_t>(1e6 * StopSignals::kOneRequestSeconds) + 1000);
  EXPECT_TRUE(signals.insists());
  signals.forget();
  EXPECT_FALSE(signals.insists());
}

}  // namespace
}  // namespace adtrain
