#include "launch/StopCode.h"

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(StopCode, AsksForANewStartExceptOfTorchrun) {
  for (const Launcher launcher :
       {Launcher::kSingle, Launcher::kFlags, Launcher::kLocal, Launcher::kMpi, Launcher::kSlurm}) {
    EXPECT_EQ(stop_code(launcher), ExitCode::kRequeue);
  }
  EXPECT_EQ(stop_code(Launcher::kTorchrun), ExitCode::kDone);
}

}  // namespace
}  // namespace adtrain
