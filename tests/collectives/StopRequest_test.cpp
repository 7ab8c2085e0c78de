#include "collectives/StopRequest.h"

#include <csignal>

#include <gtest/gtest.h>
#include <unistd.h>

#include "collectives/SingleCommunicator.h"
#include "launch/HeldTermination.h"
#include "launch/StopSignals.h"

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

/// `timeout` signals its child, and then the group to which the child belongs.
TEST(StopRequest, ATerminationThatArrivesTwiceIsOneRequest) {
  const StopRequest stop;
  std::raise(SIGTERM);
  std::raise(SIGTERM);
  EXPECT_EQ(StopRequest::signal_number(), SIGTERM);
}

TEST(StopRequest, ATerminalThatIsClosedIsARequestToStop) {
  const StopRequest stop;
  std::raise(SIGHUP);
  EXPECT_EQ(StopRequest::signal_number(), SIGHUP);
}

/// As `nohup` starts a command.
TEST(StopRequest, AHangUpThatIsIgnoredStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  {
    const StopRequest stop;
    std::raise(SIGHUP);
    EXPECT_EQ(StopRequest::signal_number(), 0);
  }
  EXPECT_TRUE(std::signal(SIGHUP, SIG_DFL) == SIG_IGN) << "afterwards too";
}

TEST(StopRequestDeathTest, ATerminationThatInsistsEndsTheProcess) {
  EXPECT_EXIT(
      {
        held_termination::begin();
        std::raise(SIGTERM);
        const StopRequest stop;
        usleep(static_cast<useconds_t>(1e6 * StopSignals::kOneRequestSeconds) + 1000);
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace adtrain
