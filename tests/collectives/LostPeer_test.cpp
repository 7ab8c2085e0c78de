#include "collectives/LostPeer.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "support/ListeningPort.h"
#include "support/Patience.h"
#include "support/Process.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kRanks = quoted(std::string(ADTRAIN_BINARY_DIR) + "/collective_ranks");

/// Two ranks that meet without a launcher, so over Gloo; ends as rank 0 does.
Finished run_two_over_gloo(const std::string& arguments) {
  const std::string together = fmt::format(
      "export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}; unset "
      "TORCHELASTIC_RUN_ID;",
      free_port());
  return run_shell(
      fmt::format("{0} RANK=1 LOCAL_RANK=1 {1} {2} & last=$!; RANK=0 LOCAL_RANK=0 {1} {2}; code=$?; "
                  "kill -9 $last; exit $code",
                  together, kRanks, arguments));
}

Finished run_over_mpi(int ranks, const std::string& arguments) {
  return run_shell(fmt::format(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -np {} {} {}", ranks,
      kRanks, arguments));
}

TEST(LostPeer, MessageNamesOperationBytesRankAndBackend) {
  const CollectiveCall call{"an all-reduce", 26214400, "Gloo", 3, 8};
  try {
    throw_timed_out(call, 600);
  } catch (const PeerLostError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank 3 of 8"), HasSubstr("an all-reduce of 25.0 MiB over Gloo"),
                      HasSubstr("collective_timeout_seconds (now 600)")));
    EXPECT_EQ(error.exit_code(), ExitCode::kPeerLost);
  }
  EXPECT_THROW(throw_lost_peer(call, "connection reset"), PeerLostError);
}

TEST(LostPeer, GlooEndsAtTheDeadlineIfARankStaysAway) {
  const Stopwatch watch;
  const Finished finished = run_two_over_gloo("--last-rank=sleeps");
  EXPECT_EQ(finished.exit_code, 7) << finished.output;
  EXPECT_THAT(finished.output, AllOf(HasSubstr("rank 0 of 2"), HasSubstr("barrier"), HasSubstr("Gloo")));
  EXPECT_LT(watch.seconds(), 30 * kPatience);
}

TEST(LostPeer, GlooNoticesAtOnceThatARankDied) {
  const Stopwatch watch;
  const Finished finished = run_two_over_gloo("--last-rank=dies");
  EXPECT_EQ(finished.exit_code, 7) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("rank 0 of 2"), HasSubstr("barrier"), HasSubstr("has failed")));
  EXPECT_LT(watch.seconds(), 30 * kPatience);
}

TEST(LostPeer, MpiEndsAtTheDeadlineIfARankStaysAway) {
  const Stopwatch watch;
  const Finished finished = run_over_mpi(3, "--last-rank=sleeps");
  EXPECT_EQ(finished.exit_code, 7) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("of 3 in a barrier"), HasSubstr("MPI"), HasSubstr("waited 1.0 s")));
  EXPECT_LT(watch.seconds(), 30 * kPatience);
}

TEST(LostPeer, MpirunEndsTheOthersWithTheCodeOfTheRankThatFailed) {
  const Stopwatch watch;
  EXPECT_NE(run_over_mpi(2, "--last-rank=dies").exit_code, 0);
  EXPECT_EQ(run_over_mpi(2, "--last-rank=throws").exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_EQ(run_over_mpi(2, "--last-rank=aborts").exit_code, static_cast<int>(ExitCode::kNonFinite));
  EXPECT_LT(watch.seconds(), 40 * kPatience);
}

}  // namespace
}  // namespace adtrain
