#include "distributed/Rendezvous.h"

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/Clock.h"
#include "base/Error.h"
#include "distributed/ListeningPort.h"
#include "distributed/RankOfTwo.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DistributedOptions patience(double seconds) {
  DistributedOptions options;
  options.rendezvous_timeout_seconds = seconds;
  return options;
}

std::string complaint(const std::function<void()>& meet) {
  try {
    meet();
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "";
}

std::string complaint(const LaunchContext& context) {
  return complaint([&] { rendezvous(context, patience(1)); });
}

/// A store whose server ends at the moment at which this rank has waited long enough.
struct LeavingStore : c10d::HashStore {
  bool check(const std::vector<std::string>&) override {
    TORCH_CHECK_WITH(DistNetworkError, false, "Failed to recv, got 0 bytes");
  }
};

TEST(Rendezvous, RanksMeetAndShareTheStore) {
  const int64_t port = free_port();
  std::string heard;
  std::thread other([&] { heard = rendezvous(rank_of_two(1, port), patience(30))->get_to_str("word"); });
  const auto store = rendezvous(rank_of_two(0, port), patience(30));
  store->set("word", std::string("hello"));
  other.join();
  EXPECT_EQ(heard, "hello");
}

TEST(Rendezvous, EveryRankIsAClientOfTheAgentsStore) {
  const int64_t port = free_port();
  LaunchContext agent = rank_of_two(0, port);
  agent.world_size = agent.local_world_size = 1;
  const auto served = rendezvous(agent, patience(30));

  LaunchContext first = rank_of_two(0, port), second = rank_of_two(1, port);
  first.agent_store = second.agent_store = true;
  first.run_id = second.run_id = "run";
  std::thread other([&] { rendezvous(second, patience(30))->set("word", std::string("hello")); });
  EXPECT_EQ(rendezvous(first, patience(30))->get_to_str("word"), "hello");
  other.join();
  EXPECT_FALSE(served->check({"word"})) << "another run sees the key";
}

TEST(Rendezvous, APortInUseNamesTheSetting) {
  const ListeningPort taken;
  EXPECT_THAT(complaint(rank_of_two(0, taken.port())),
              AllOf(HasSubstr("in use"), HasSubstr("MASTER_PORT"), HasSubstr(std::to_string(taken.port()))));
}

TEST(Rendezvous, AnUnreachableMasterIsGivenUpInTime) {
  const Stopwatch watch;
  const int64_t port = free_port();
  EXPECT_THAT(complaint(rank_of_two(1, port)), AllOf(HasSubstr("Rank 1 of 2"), HasSubstr("rank 0"),
                                                     HasSubstr("127.0.0.1:" + std::to_string(port))));
  EXPECT_LT(watch.seconds(), 5);
}

TEST(Rendezvous, RanksThatDoNotComeAreNamed) {
  LaunchContext context = rank_of_two(0, free_port());
  context.world_size = context.local_world_size = 4;
  const Stopwatch watch;
  EXPECT_THAT(complaint(context), AllOf(HasSubstr("ranks 1, 2, 3"), HasSubstr("all 4 ranks")));
  EXPECT_LT(watch.seconds(), 5);
}

TEST(Rendezvous, AMasterThatLeavesWhileItIsAskedWhoIsMissingIsNamed) {
  const LaunchContext context = rank_of_two(1, free_port());
  LeavingStore store;
  EXPECT_THAT(complaint([&] { await_all_ranks(store, context, Deadline(0.1)); }),
              AllOf(HasSubstr("Rank 1 of 2"), HasSubstr("127.0.0.1:" + std::to_string(context.master_port)),
                    HasSubstr("got 0 bytes"), HasSubstr("rank 0 has ended or given up")));
}

}  // namespace
}  // namespace adtrain
