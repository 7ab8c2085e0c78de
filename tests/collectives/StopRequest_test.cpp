#include "collectives/StopRequest.h"

#include <csignal>

#include <gtest/gtest.h>

#include "collectives/SingleCommunicator.h"
#include "launch/HeldTermination.h"

namespace adtrain {
namespace {

TEST(StopRequest, ATerminationThatWasHeldDuringTheStartIsARequestToStop) {
  held_termination::begin();
  std::raise(SIGTERM);
  {
    const StopRequest stop;
    EXPECT_EQ(StopRequest::signal_number(), SIGTERM);
    SingleCommunicator alone;
    EXPECT_TRUE(stop.agreed(alone));
    EXPECT_FALSE(held_termination::asked());
  }
  EXPECT_EQ(StopRequest::signal_number(), 0);
  held_termination::release();  // as nothing is held, it ends nothing
}

TEST(StopRequestDeathTest, ASecondTerminationEndsTheProcess) {
  EXPECT_EXIT(
      {
        held_termination::begin();
        std::raise(SIGTERM);
        const StopRequest stop;
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace adtrain
