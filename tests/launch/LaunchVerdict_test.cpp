#include "launch/LaunchVerdict.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(LaunchVerdict, TheFirstThatIsToldStands) {
  VerdictPipe pipe;
  EXPECT_EQ(pipe.first(), std::nullopt);
  setenv(kVerdictVariable, std::to_string(pipe.of_ranks()).c_str(), 1);
  tell_launcher(12);
  tell_launcher(3);
  EXPECT_EQ(pipe.first(), 12);
  tell_launcher(4);
  EXPECT_EQ(pipe.first(), 12);
  unsetenv(kVerdictVariable);
}

TEST(LaunchVerdict, NothingIsWrittenWhereNoLauncherListens) {
  VerdictPipe pipe;
  tell_launcher(1);
  for (const char* other : {"", "0", "1", "-1", "words", "99999999999999999999"}) {
    setenv(kVerdictVariable, other, 1);
    tell_launcher(1);
  }
  unsetenv(kVerdictVariable);
  EXPECT_EQ(pipe.first(), std::nullopt);
}

}  // namespace
}  // namespace adtrain
