#include "watchdog/FailureWatch.h"

#include <thread>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "collectives/Meeting.h"
#include "support/ListeningPort.h"
#include "support/RankOfTwo.h"
#include "watchdog/LineSocket.h"
#include "watchdog/Standstill.h"
#include "watchdog/StartWatch.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

Failure lost_its_data(int64_t rank) {
  const RankIdentity who = {rank, 2, "n2", 4711};
  Failure failure = Failure::of(DataError("histories/x.hdf5 does not exist"), who);
  failure.doing = {.phase = "training", .step = 12, .waits_in = "a barrier", .seconds = 3};
  return failure;
}

TEST(FailureWatch, AFailureSaysWhoWasDoingWhatAndHowToGoOn) {
  EXPECT_THAT(lost_its_data(1).block(),
              AllOf(HasSubstr("rank 1 of 2 failed first"), HasSubstr("process 4711 on n2"),
                    HasSubstr("training after step 12, waiting in a barrier for 3.0 s"),
                    HasSubstr("histories/x.hdf5 does not exist"), HasSubstr("exit code   4"),
                    HasSubstr("start the same command again")));
}

TEST(FailureWatch, WhatARankReportedLastIsNotSaidToBeWhatItDidInTheEnd) {
  const ActivityStatus starting = {.phase = "starting", .step = {}, .waits_in = "", .seconds = 0.4};
  EXPECT_THAT(Failure::gone({1, 2, "n2", 4711}, starting).block(),
              HasSubstr("   last heard  starting for 0.4 s\n"));
  EXPECT_THAT(lost_its_data(1).block(), HasSubstr("   was         training after step 12"));
}

TEST(FailureWatch, OnlyACommandThatContinuesByResumeIsToldOfIt) {
  const RankIdentity who = {0, 2, "n1", 4711, 0};
  for (const bool resumes : {true, false}) {
    Activity::of_this_process().continues_by_resume(resumes);
    for (const Failure& failure :
         {lost_its_data(0), Failure::of(std::runtime_error("unforeseen"), who), Failure::gone(who, {}),
          Failure::silent(who, {}, 20), standstill({{who, {}}})}) {
      EXPECT_THAT(failure.advice,
                  EndsWith(resumes ? "start again with --resume" : "start the same command again"));
    }
  }
}

TEST(FailureWatch, WhoRunsOutOfMemoryIsToldWhatTakesLess) {
  const c10::OutOfMemoryError error({__func__, __FILE__, __LINE__}, "CUDA out of memory");
  EXPECT_THAT(Failure::of(error, {0, 2, "n1", 1}).block(),
              AllOf(HasSubstr("out of memory"), HasSubstr("gradient_accumulation_steps")));
}

/// Two ranks as threads of this process, each with its watch and its communicator.
class TwoRanks {
 public:
  /// `act` is called on each rank with its number and watch; returns what each was told.
  static std::vector<std::vector<Failure>> run(const std::function<void(int64_t, FailureWatch&)>& act) {
    const int64_t port = free_port();
    std::vector<std::vector<Failure>> told(2);
    const auto as_rank = [&](int64_t rank) {
      const LaunchContext context = rank_of_two(rank, port);
      StartWatch start(context, options(), [](const Failure&) {});
      const auto meeting = Meeting::attend(context, options(), start);
      const auto watch = FailureWatch::start(
          context, [&meeting](const std::string& word) { return meeting->word_of_root(word); }, options(),
          [&told, rank](const Failure& first) { told[static_cast<size_t>(rank)].push_back(first); });
      const auto communicator = meeting->join();
      start.nobody_is_waited_for();
      act(rank, *watch);
      communicator->barrier();
    };
    std::thread other(as_rank, 1);
    as_rank(0);
    other.join();
    return told;
  }

 private:
  /// The watch must not end this process.
  static DistributedOptions options() {
    DistributedOptions options;
    options.rendezvous_timeout_seconds = 30;
    options.leave_within_seconds = 86400;
    return options;
  }
};

TEST(FailureWatch, EveryRankIsToldOnceWhoFailedWhicheverItWas) {
  for (const int64_t culprit : {0, 1}) {
    const auto told = TwoRanks::run([culprit](int64_t rank, FailureWatch& watch) {
      if (rank == culprit) {
        watch.report(lost_its_data(rank));
        watch.report(lost_its_data(1 - rank));  // later, so not the first
      } else {
        EXPECT_TRUE(watch.ask(20)) << "a rank that has lost a peer is answered";
      }
      EXPECT_TRUE(watch.settled());
    });
    for (const std::vector<Failure>& heard : told) {
      ASSERT_EQ(heard.size(), 1U);
      EXPECT_EQ(heard[0].who.rank, culprit);
      EXPECT_EQ(heard[0].code, ExitCode::kData);
    }
  }
}

TEST(FailureWatch, AnErrorMayHoldAnyBytes) {
  const auto told = TwoRanks::run([](int64_t rank, FailureWatch& watch) {
    if (rank == 0) return;
    watch.report(Failure::of(DataError("hist\xE9ries.hdf5 does not exist"), {1, 2, "n2", 1}));
  });
  ASSERT_EQ(told[0].size(), 1U);
  EXPECT_THAT(told[0][0].error, HasSubstr("ries.hdf5 does not exist"));
}

TEST(FailureWatch, ARankThatDoesSomethingElseIsTheOneThatOthersWaitForInVain) {
  Activity::of_this_process().begin("reading a slow disk");
  const auto told = TwoRanks::run([](int64_t rank, FailureWatch& watch) {
    if (rank == 1) return std::this_thread::sleep_for(std::chrono::seconds(6));
    EXPECT_TRUE(watch.ask(20));
  });
  ASSERT_EQ(told[0].size(), 1U);
  EXPECT_EQ(told[0][0].who.rank, 1);
  EXPECT_THAT(told[0][0].block(),
              AllOf(HasSubstr("waited for it in vain"), HasSubstr("reading a slow disk")));
}

TEST(FailureWatch, RanksThatSayGoodbyeHaveNotFailed) {
  for (const std::vector<Failure>& heard :
       TwoRanks::run([](int64_t, FailureWatch& watch) { EXPECT_FALSE(watch.settled()); })) {
    EXPECT_THAT(heard, IsEmpty());
  }
}

TEST(FailureWatch, LinesArriveWholeAndInOrder) {
  LineListener listener;
  auto sender = LineSocket::connect("127.0.0.1", listener.port(), 5);
  ASSERT_TRUE(sender);
  wait_until_readable({listener.descriptor()}, 5);
  auto receiver = listener.accept();
  ASSERT_TRUE(receiver);
  const std::string lengthy(100'000, 'x');
  for (const std::string& line : {std::string("first"), lengthy, std::string("last")}) sender->send(line);
  EXPECT_EQ(receiver->wait_for_line(5), "first");
  EXPECT_EQ(receiver->wait_for_line(5), lengthy);
  EXPECT_EQ(receiver->wait_for_line(5), "last");
  EXPECT_FALSE(receiver->closed());
  sender.reset();
  EXPECT_EQ(receiver->wait_for_line(5), std::nullopt);
  EXPECT_TRUE(receiver->closed());
}

TEST(FailureWatch, NobodyAnswersAtAPortThatIsFree) {
  EXPECT_FALSE(LineSocket::connect("127.0.0.1", free_port(), 1));
}

}  // namespace
}  // namespace adtrain
