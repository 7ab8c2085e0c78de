#include "collectives/Rendezvous.h"

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/Clock.h"
#include "base/Error.h"
#include "launch/MasterAddress.h"
#include "support/ListeningPort.h"
#include "support/RankOfTwo.h"
#include "watchdog/StartWatch.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

DistributedOptions patience(double seconds) {
  DistributedOptions options;
  options.rendezvous_timeout_seconds = seconds;
  return options;
}

/// A rank at the meeting, and what watches over its start.
struct Attendance {
  explicit Attendance(const LaunchContext& context, double seconds = 30)
      : watch(context, patience(seconds), [](const Failure&) {}),
        meeting(context, patience(seconds), watch) {}

  StartWatch watch;
  Rendezvous meeting;
};

/// What a rank that meets nobody, or the wrong ones, is told.
struct Complaint {
  std::string message;
  int64_t rank = -1;  ///< the one that is to blame
};

Complaint complaint(const std::function<void()>& meet) {
  try {
    meet();
  } catch (const MeetingError& error) {
    return {error.what(), error.failure().who.rank};
  } catch (const EnvironmentError& error) {
    return {error.what()};
  }
  return {};
}

Complaint complaint(const LaunchContext& context, double seconds = 1) {
  return complaint([&] { Attendance(context, seconds).meeting.await_all(); });
}

/// A store whose server ends at the moment at which this rank has waited long enough.
struct LeavingStore : c10d::HashStore {
  bool check(const std::vector<std::string>&) override {
    TORCH_CHECK_WITH(DistNetworkError, false, "Failed to recv, got 0 bytes");
  }
};

struct MeetingInThatStore : Rendezvous {
  MeetingInThatStore(const LaunchContext& context, StartWatch& watch)
      : Rendezvous(context, patience(0.1), watch, c10::make_intrusive<LeavingStore>()) {}
};

TEST(Rendezvous, RanksMeetAndHearTheWordOfRankZero) {
  const int64_t port = free_port();
  std::string heard;
  std::thread other([&] {
    Attendance here(rank_of_two(1, port));
    heard = here.meeting.word_of_root("");
    here.meeting.await_all();
  });
  Attendance here(rank_of_two(0, port));
  EXPECT_EQ(here.meeting.word_of_root("hello"), "hello");
  here.meeting.await_all();
  other.join();
  EXPECT_EQ(heard, "hello");
}

TEST(Rendezvous, TheWordOfRankZeroDoesNotWaitForThoseWhoAreLate) {
  const int64_t port = free_port();
  LaunchContext first = rank_of_two(0, port), second = rank_of_two(1, port);
  first.world_size = second.world_size = first.local_world_size = second.local_world_size = 3;
  std::string heard;
  std::thread other([&] { heard = Attendance(second).meeting.word_of_root(""); });
  Attendance here(first);
  here.meeting.word_of_root("hello");
  other.join();  // the third is never there
  EXPECT_EQ(heard, "hello");
}

TEST(Rendezvous, EveryRankIsAClientOfTheAgentsStore) {
  const int64_t port = free_port();
  LaunchContext agent = rank_of_two(0, port);
  agent.world_size = agent.local_world_size = 1;
  const Attendance served(agent);

  LaunchContext first = rank_of_two(0, port), second = rank_of_two(1, port);
  first.agent_store = second.agent_store = true;
  first.run_id = second.run_id = "run";
  std::thread other([&] {
    Attendance here(second);
    here.meeting.store().set("word", std::string("hello"));
    here.meeting.await_all();
  });
  Attendance here(first);
  here.meeting.await_all();
  EXPECT_EQ(here.meeting.store().get_to_str("word"), "hello");
  other.join();
  EXPECT_FALSE(served.meeting.store().check({"word"})) << "another run sees the key";
}

/// torchrun's agent, which serves its store for all attempts, and the places of two ranks.
struct Agent {
  Agent() {
    for (LaunchContext* rank : {&first, &second}) {
      rank->agent_store = true;
      rank->run_id = "run";
    }
  }
  /// Returns what the ranks have heard from rank 0, which says `word` after all have started.
  std::vector<std::string> meet(const std::string& word) const {
    std::vector<std::string> heard(2);
    std::thread other([&] {
      Attendance here(second);
      heard[1] = here.meeting.word_of_root("");
      here.meeting.await_all();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 0 is the last one to start
    Attendance here(first);
    heard[0] = here.meeting.word_of_root(word);
    here.meeting.await_all();
    other.join();
    return heard;
  }
  static LaunchContext alone(int64_t port) {
    LaunchContext context = rank_of_two(0, port);
    context.world_size = context.local_world_size = 1;
    return context;
  }

  int64_t port = free_port();
  Attendance served{alone(port)};
  LaunchContext first = rank_of_two(0, port), second = rank_of_two(1, port);
};

TEST(Rendezvous, RanksMeetAgainInTheStoreOfAnAgentWhateverItCounts) {
  Agent agent;
  EXPECT_THAT(agent.meet("first"), testing::Each("first"));
  agent.second.restart_count = 1;  // its own rank had failed; the other agent has only joined in
  EXPECT_THAT(agent.meet("second"), testing::Each("second"));
  EXPECT_THAT(agent.meet("third"), testing::Each("third")) << "a host has joined, which nobody counts";
}

TEST(Rendezvous, NoRankFollowsRankZeroOfAnEarlierAttempt) {
  Agent agent;
  agent.meet("first");
  const Complaint found = complaint(agent.second);
  EXPECT_THAT(found.message, AllOf(HasSubstr("Rank 1 of 2 waited"), HasSubstr("for rank 0;")));
  EXPECT_EQ(found.rank, 0);
}

TEST(Rendezvous, TwoProcessesWithOneRankAreRefusedInTheStoreOfAnAgent) {
  for (const bool root : {false, true}) {
    Agent agent;
    const int64_t rank = root ? 0 : 1;
    LaunchContext twice = root ? agent.first : agent.second;
    for (LaunchContext* context : {&agent.first, &twice}) context->world_size = context->local_world_size = 3;
    std::vector<Complaint> found(root ? 2 : 3);
    std::thread one([&] { found[0] = complaint(twice, 20); }), two([&] { found[1] = complaint(twice, 20); });
    if (!root) found[2] = complaint(agent.first, 20);
    one.join();
    two.join();
    for (const Complaint& each : found) {
      EXPECT_THAT(each.message, AllOf(HasSubstr(fmt::format("Rank {} does not belong", rank)),
                                      HasSubstr("has come twice"), HasSubstr("RANK")));
      EXPECT_EQ(each.rank, rank);
    }
  }
}

TEST(Rendezvous, APortInUseNamesTheSettingAndBlamesNoOtherRank) {
  const ListeningPort taken;
  const Complaint found = complaint(rank_of_two(0, taken.port()));
  EXPECT_THAT(found.message,
              AllOf(HasSubstr("in use"), HasSubstr("MASTER_PORT"), HasSubstr(std::to_string(taken.port()))));
  EXPECT_EQ(found.rank, 0);
}

TEST(Rendezvous, AMasterWhoseNameIsNotKnownIsNoOtherRanksFault) {
  const std::string name(64, 'x');  // longer than a name may be, so that nobody is asked
  for (const int64_t rank : {0, 1}) {
    LaunchContext context = rank_of_two(rank, free_port());
    context.master_address = name;
    const Complaint found = complaint(context);
    EXPECT_THAT(found.message,
                AllOf(HasSubstr(name), HasSubstr(MasterAddress(name, context.master_port).trouble())));
    EXPECT_EQ(found.rank, rank == 0 ? RankIdentity::kNobody : rank);
  }
}

TEST(Rendezvous, AnUnreachableMasterIsGivenUpInTime) {
  const Stopwatch watch;
  const int64_t port = free_port();
  const Complaint found = complaint(rank_of_two(1, port));
  EXPECT_THAT(found.message, AllOf(HasSubstr("Rank 1 of 2"), HasSubstr("rank 0"),
                                   HasSubstr("127.0.0.1:" + std::to_string(port))));
  EXPECT_EQ(found.rank, 0);
  EXPECT_LT(watch.seconds(), 5);
}

TEST(Rendezvous, RanksThatDoNotComeAreNamed) {
  LaunchContext context = rank_of_two(0, free_port());
  context.world_size = context.local_world_size = 4;
  const Stopwatch watch;
  const Complaint found = complaint(context);
  EXPECT_THAT(found.message, AllOf(HasSubstr("ranks 1, 2, 3"), HasSubstr("all 4 ranks")));
  EXPECT_EQ(found.rank, 1);
  EXPECT_LT(watch.seconds(), 5);
}

TEST(Rendezvous, AMasterThatLeavesWhileItIsAskedWhoIsMissingIsNamed) {
  const LaunchContext context = rank_of_two(1, free_port());
  StartWatch watch(context, patience(30), [](const Failure&) {});
  const Complaint found = complaint([&] { MeetingInThatStore(context, watch).await_all(); });
  EXPECT_THAT(found.message,
              AllOf(HasSubstr("Rank 1 of 2"), HasSubstr("127.0.0.1:" + std::to_string(context.master_port)),
                    HasSubstr("got 0 bytes"), HasSubstr("rank 0 has ended or given up")));
  EXPECT_EQ(found.rank, 0);
}

TEST(Rendezvous, ARankThatWasToldAnotherNumberOfRanksIsRefusedByAll) {
  const int64_t port = free_port();
  LaunchContext astray = rank_of_two(1, port);
  astray.world_size = astray.local_world_size = 3;
  Complaint theirs;
  std::thread other([&] { theirs = complaint(astray, 30); });
  Attendance root(rank_of_two(0, port));  // it stays, as a rank does, until the other has read why
  const Complaint ours = complaint([&] { root.meeting.await_all(); });
  other.join();
  for (const Complaint& found : {ours, theirs}) {
    EXPECT_THAT(found.message,
                AllOf(HasSubstr("Rank 1 does not belong"), HasSubstr("one of 3 ranks"), HasSubstr("one of 2"),
                      HasSubstr("WORLD_SIZE"), Not(HasSubstr("GLOO_SOCKET_IFNAME"))));
    EXPECT_EQ(found.rank, 1);
  }
}

TEST(Rendezvous, TwoProcessesWithOneRankAreRefusedByAll) {
  const int64_t port = free_port();
  LaunchContext first = rank_of_two(0, port), twice = rank_of_two(1, port);
  first.world_size = twice.world_size = first.local_world_size = twice.local_world_size = 3;
  std::vector<Complaint> found(3);
  std::thread one([&] { found[1] = complaint(twice, 30); }), two([&] { found[2] = complaint(twice, 30); });
  Attendance root(first);  // it stays, as a rank does, until the others have read why
  found[0] = complaint([&] { root.meeting.await_all(); });
  one.join();
  two.join();
  for (const Complaint& each : found) {
    EXPECT_THAT(each.message,
                AllOf(HasSubstr("Rank 1 does not belong"), HasSubstr("has come twice"), HasSubstr("RANK")));
    EXPECT_EQ(each.rank, 1);
  }
}

/// Listens, takes every connection, and says a line or nothing to it.
class ForeignService {
 public:
  explicit ForeignService(std::string answer) : answer_(std::move(answer)), thread_([this] { serve(); }) {}
  ~ForeignService() {
    shutdown(listening_.descriptor(), SHUT_RDWR);
    thread_.join();
    for (const int connection : connections_) close(connection);
  }
  int64_t port() const { return listening_.port(); }

 private:
  void serve() {
    for (int connection = 0; (connection = accept(listening_.descriptor(), nullptr, nullptr)) >= 0;) {
      connections_.push_back(connection);
      send(connection, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
  }

  ListeningPort listening_;
  std::string answer_;
  std::vector<int> connections_;
  std::thread thread_;
};

TEST(Rendezvous, AForeignServiceHoldsNobodyLongerThanTheTimeout) {
  for (const std::string answer : {"", "SSH-2.0-OpenSSH_9.2\r\n"}) {
    const ForeignService service(answer);
    const Stopwatch watch;
    const Complaint found = complaint(rank_of_two(1, service.port()));
    EXPECT_LT(watch.seconds(), 10);
    EXPECT_THAT(found.message, AllOf(HasSubstr("127.0.0.1:" + std::to_string(service.port())),
                                     HasSubstr(answer.empty() ? "says nothing" : "SSH-2.0-OpenSSH_9.2'")));
  }
}

TEST(Rendezvous, NobodyReachesThePortOnceAllHaveMet) {
  const int64_t port = free_port();
  std::unique_ptr<Communicator> theirs;
  std::thread other([&] { theirs = Attendance(rank_of_two(1, port)).meeting.join(); });
  const auto ours = Attendance(rank_of_two(0, port)).meeting.join();
  other.join();
  EXPECT_EQ(find_listener("127.0.0.1", port, 0.2).trouble, "Connection refused");
  std::thread theirs_too([&] { theirs->barrier(); });
  ours->barrier();  // connections that were there stay
  theirs_too.join();
}

}  // namespace
}  // namespace adtrain
