#include "watchdog/WatchMessage.h"

#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Random.h"

namespace adtrain {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

Failure some_failure() {
  Failure failure =
      Failure::gone({3, 4, "n9", 12, 345}, {.phase = "training", .step = 7, .waits_in = "a barrier"});
  failure.code = ExitCode::kData;
  return failure;
}

std::vector<WatchMessage> one_of_each() {
  const RankIdentity who = {1, 4, "n2", 4711, 99};
  const ActivityStatus doing = {.phase = "loading", .step = std::nullopt, .waits_in = "", .seconds = 0.5};
  return {Invitation{who, 40000, "secret", {"10.0.0.1", "10.0.0.2"}},
          Hello{"secret", who, doing},
          Welcome{},
          Beat{doing},
          Failed{some_failure()},
          Lost{},
          Verdict{some_failure()},
          Bye{}};
}

TEST(WatchMessage, EveryKindTravelsWithoutLoss) {
  for (const WatchMessage& sent : one_of_each()) {
    const auto received = read_watch_message(line_of(sent));
    ASSERT_TRUE(received) << line_of(sent);
    EXPECT_EQ(received->index(), sent.index());
    EXPECT_EQ(line_of(*received), line_of(sent));
  }
  const auto verdict = read_watch_message(line_of(Verdict{some_failure()}));
  EXPECT_EQ(std::get<Verdict>(*verdict).failure.block(), some_failure().block());
  EXPECT_EQ(std::get<Verdict>(*verdict).failure.who.started, 345);
}

TEST(WatchMessage, AnErrorMayHoldAnyBytesAndMayBeLong) {
  Failure failure = some_failure();
  failure.error = "hist\xE9ries.hdf5" + std::string(1 << 20, '\xFF');
  const std::string line = line_of(Failed{failure});
  EXPECT_LT(line.size(), kLongestLine);
  const auto received = read_watch_message(line);
  ASSERT_TRUE(received);
  EXPECT_THAT(std::get<Failed>(*received).failure.error, HasSubstr("ries.hdf5"));
}

TEST(WatchMessage, WhatIsNoMessageIsNothing) {
  const std::string who = R"({"rank":1,"world_size":2,"host":"h","process":1,"started":1})";
  const std::string doing = R"({"phase":"p","step":1,"waits_in":"","seconds":1})";
  const auto hello = [](const std::string& secret, const std::string& identity, const std::string& activity) {
    return R"({"kind":"hello","secret":)" + secret + R"(,"who":)" + identity + R"(,"doing":)" + activity +
           "}";
  };
  ASSERT_TRUE(read_watch_message(hello(R"("s")", who, doing))) << "the others differ from this one";
  const auto replaced = [](std::string text, const std::string& old, const std::string& by) {
    return text.replace(text.find(old), old.size(), by);
  };
  for (const std::string& line : {
           std::string(),
           std::string("\0\0", 2),
           std::string("GET / HTTP/1.1\r"),
           std::string("null"),
           std::string("5"),
           std::string("[]"),
           std::string("{}"),
           std::string("{\"kind\":"),
           std::string(R"({"token":5})"),
           std::string(R"({"token":null})"),
           std::string(R"({"kind":null})"),
           std::string(R"({"kind":"hello"})"),
           std::string(R"({"kind":"nonsense"})"),
           std::string(R"({"kind":"beat","doing":[]})"),
           std::string(R"({"kind":"verdict","failure":{"who":1}})"),
           hello("5", who, doing),
           hello("null", who, doing),
           hello(R"("s")", "null", doing),
           hello(R"("s")", who, "7"),
           hello(R"("s")", replaced(who, R"("rank":1)", R"("rank":-1)"), doing),
           hello(R"("s")", replaced(who, R"("rank":1)", R"("rank":2)"), doing),
           hello(R"("s")", replaced(who, R"("rank":1)", R"("rank":1.5)"), doing),
           hello(R"("s")", replaced(who, R"("rank":1)", R"("rank":true)"), doing),
           hello(R"("s")", replaced(who, R"("rank":1)", R"("rank":"1")"), doing),
           hello(R"("s")", replaced(who, R"("world_size":2)", R"("world_size":18446744073709551615)"), doing),
           hello(R"("s")", replaced(who, R"("world_size":2)", R"("world_size":1e300)"), doing),
           hello(R"("s")", replaced(who, R"("host":"h")", R"("host":")" + std::string(5000, 'h') + "\""),
                 doing),
           hello(R"("s")", who, replaced(doing, R"("seconds":1)", R"("seconds":-1)")),
           hello(R"("s")", who, replaced(doing, R"("seconds":1)", R"("seconds":1e999)")),
           std::string(kLongestLine, '['),
           std::string(kLongestLine + 1, ' ') + R"({"kind":"bye"})",
       }) {
    EXPECT_FALSE(read_watch_message(line)) << line.substr(0, 100);
  }
}

/// Bytes of each kind of message changed, left out and doubled at random.
TEST(WatchMessage, NoBytesDoHarm) {
  RandomStream random(seed_of(1));
  int64_t understood = 0;
  for (const WatchMessage& message : one_of_each()) {
    for (int i = 0; i < 3000; ++i) {
      std::string line = line_of(message);
      for (uint64_t change = 0; change <= random.below(4); ++change) {
        const size_t place = random.below(line.size());
        const size_t kind = random.below(3);
        if (kind == 0) line[place] = static_cast<char>(random.below(256));
        if (kind == 1) line.erase(place, 1 + random.below(8));
        if (kind == 2) line.insert(place, line.substr(random.below(place + 1), 1 + random.below(40)));
        if (line.empty()) break;
      }
      if (const auto read = read_watch_message(line)) {
        ++understood;
        EXPECT_TRUE(read_watch_message(line_of(*read))) << line;
      }
    }
  }
  EXPECT_GT(understood, 0) << "some changes are harmless";
}

TEST(WatchMessage, SecretsDiffer) {
  std::set<std::string> secrets;
  for (int i = 0; i < 100; ++i) secrets.insert(random_secret());
  EXPECT_THAT(secrets, SizeIs(100));
  EXPECT_THAT(*secrets.begin(), SizeIs(32));  // 128 bits
  EXPECT_TRUE(same_secret("abc", "abc"));
  for (const char* other : {"", "ab", "abd", "abcd"}) EXPECT_FALSE(same_secret("abc", other));
}

}  // namespace
}  // namespace adtrain
