#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/Process.h"

namespace adtrain {
namespace {

/// What OpenMP's runtime found in its environment.
std::string spins(const std::string& variables) {
  const Finished finished = run_shell("env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY " + variables +
                                      " " ADTRAIN_BINARY_DIR "/adtrain env --json");
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  return nlohmann::json::parse(finished.output).at("cpu").at("OpenMP spin count");
}

TEST(BriefWaiting, ThreadsSpinBrieflyUnlessTheUserSaysOtherwise) {
  EXPECT_EQ(spins(""), "700");
  EXPECT_EQ(spins("GOMP_SPINCOUNT=77"), "77");
  EXPECT_EQ(spins("OMP_WAIT_POLICY=active"), "the library's own");
}

TEST(BriefWaiting, TheProcessStaysTheOneThatWasStarted) {
  // The shell becomes the program, which becomes itself again; its parent waits for one process all along.
  const Finished finished =
      run_shell("env -u GOMP_SPINCOUNT bash -c 'exec -a another-name " ADTRAIN_BINARY_DIR
                "/adtrain --version' & started=$!; wait $started; echo code $?");
  EXPECT_NE(finished.output.find("adtrain 0"), std::string::npos) << finished.output;
  EXPECT_NE(finished.output.find("code 0"), std::string::npos) << finished.output;
}

TEST(BriefWaiting, StartedByTheLoaderItGoesOnAsItIs) {
  const Finished finished =
      run_shell("env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY /lib64/ld-linux-x86-64.so.2 " ADTRAIN_BINARY_DIR
                "/adtrain --version");
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
}

}  // namespace
}  // namespace adtrain
