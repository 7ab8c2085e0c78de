#include "watchdog/WatchCoordinator.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const std::string kSecret = random_secret();

/// Rank 0's watch alone, and what it was told. The others are connections that the test speaks over.
class Root {
 public:
  explicit Root(int64_t world_size)
      : watch_(
            {0, world_size, "here", 1, 0}, options(), [this](const Failure& first) { take(first); }, kSecret,
            "127.0.0.1") {}

  /// A rank as it comes, welcomed.
  std::optional<LineSocket> join(int64_t rank, int64_t world_size) const {
    auto connection = connect();
    if (!connection) return std::nullopt;
    connection->send(line_of(Hello{kSecret, {rank, world_size, "there", 1, 0}, {}}));
    const auto answer = connection->wait_for_line(20);
    const auto message = answer ? read_watch_message(*answer) : std::nullopt;
    if (!message || !std::holds_alternative<Welcome>(*message)) return std::nullopt;
    return connection;
  }
  std::optional<LineSocket> connect() const { return LineSocket::connect("127.0.0.1", watch_.port(), 5); }

  WatchCoordinator& watch() { return watch_; }
  std::vector<Failure> told() {
    const std::scoped_lock lock(mutex_);
    return told_;
  }

 private:
  /// The watch must not end this process.
  static DistributedOptions options() {
    DistributedOptions options;
    options.leave_within_seconds = 86400;
    return options;
  }
  void take(const Failure& first) {
    const std::scoped_lock lock(mutex_);
    told_.push_back(first);
  }

  std::mutex mutex_;
  std::vector<Failure> told_;
  WatchCoordinator watch_;
};

bool comes_true(const std::function<bool()>& condition) {
  const Stopwatch watch;
  while (!condition()) {
    if (watch.seconds() > 30) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

bool hung_up_on(LineSocket& connection) {
  return comes_true([&] {
    connection.receive();
    return connection.closed();
  });
}

int64_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The most descriptors that this process may have, for as long as the object lives.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit wanted = {std::min(most, before_.rlim_max), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &wanted);
    limit_ = static_cast<int64_t>(wanted.rlim_cur);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  int64_t limit() const { return limit_; }

 private:
  rlimit before_{};
  int64_t limit_;
};

TEST(WatchCoordinator, StrangersThatSayAnythingAreHungUpOn) {
  Root root(3);
  for (const std::string& words :
       {std::string(R"({"token":5})"), std::string(R"({"token":null})"), std::string("null"),
        std::string("GET / HTTP/1.1\r"), std::string(1, '\0'), std::string(3000, '['), line_of(Bye{}),
        line_of(Hello{"", {1, 3, "there", 1, 0}, {}}),
        line_of(Hello{random_secret(), {1, 3, "there", 1, 0}, {}}),
        line_of(Hello{kSecret, {0, 3, "there", 1, 0}, {}}),
        line_of(Hello{kSecret, {1, 2, "there", 1, 0}, {}})}) {
    auto stranger = root.connect();
    ASSERT_TRUE(stranger);
    stranger->send(words);
    EXPECT_TRUE(hung_up_on(*stranger)) << words;
  }
  EXPECT_TRUE(root.join(1, 3)) << "who knows the secret is let in";
  EXPECT_TRUE(comes_true([&] { return root.told().size() == 1; })) << "that rank has left without a word";
  EXPECT_EQ(root.told().front().who.rank, 1);
}

TEST(WatchCoordinator, BytesWithoutALineEndAreNotKept) {
  Root root(3);
  auto stranger = root.connect();
  ASSERT_TRUE(stranger);
  stranger->send(std::string(2 * kLongestHello, 'x'));
  EXPECT_TRUE(hung_up_on(*stranger));

  auto member = root.join(1, 3);
  ASSERT_TRUE(member);
  const std::string megabyte(1 << 20, 'x');
  for (int i = 0; i < 64; ++i) {  // goes on being read, though none of it is a line
    member->send(megabyte.substr(0, 500'000));
    ASSERT_TRUE(comes_true([&] {
      member->flush();
      member->receive();
      return !member->closed();
    }));
  }
  member->send("");
  for (const char* garbage :
       {R"({"kind":"beat","doing":5})", R"({"kind":"failed"})", "[[[", R"({"kind":1})"}) {
    member->send(garbage);
  }
  EXPECT_TRUE(root.join(2, 3)) << "the watch lives";
  EXPECT_TRUE(comes_true([&] { return root.told().size() == 1; }));
  EXPECT_EQ(root.told().front().who.rank, 2) << "rank 1, which sends garbage, is not judged for it";
}

TEST(WatchCoordinator, IdleStrangersTakeNeitherDescriptorsNorACore) {
  const DescriptorLimit most(12'000);
  Root root(2);
  const int64_t before = open_descriptors();
  std::vector<LineSocket> crowd;
  const int64_t size =
      std::min<int64_t>(10'000, most.limit() - before - 2 * WatchCoordinator::kMostStrangers - 50);
  ASSERT_GT(size, 0);
  while (static_cast<int64_t>(crowd.size()) < size) {
    auto stranger = root.connect();
    ASSERT_TRUE(stranger) << crowd.size();
    crowd.push_back(std::move(*stranger));
  }
  const auto kept = [&] { return open_descriptors() - before - static_cast<int64_t>(crowd.size()); };
  EXPECT_TRUE(comes_true([&] { return kept() <= static_cast<int64_t>(WatchCoordinator::kMostStrangers); }))
      << kept();

  const double cpu = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_LT(cpu_seconds() - cpu, 1) << "of two seconds";

  EXPECT_TRUE(root.join(1, 2)) << "own ranks find their way through the crowd";
  EXPECT_TRUE(comes_true([&] { return kept() <= 1; })) << "when all have come, strangers go";
  EXPECT_TRUE(comes_true([&] { return !root.connect(); })) << "and the port is closed";
}

TEST(WatchCoordinator, WithoutDescriptorsItWaitsUntilThereAreSome) {
  Root root(2);
  std::vector<LineSocket> crowd;
  {
    const DescriptorLimit scarce(static_cast<rlim_t>(open_descriptors()) + 8);
    while (auto stranger = root.connect()) crowd.push_back(std::move(*stranger));
    ASSERT_FALSE(crowd.empty());
    crowd.pop_back();  // what is free now is the next stranger's
    const double cpu = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    EXPECT_LT(cpu_seconds() - cpu, 1) << "of two seconds";
  }
  EXPECT_TRUE(root.join(1, 2));
}

/// As it hears when it is woken.
TEST(WatchCoordinator, BelievesTheOthersThatItWasItselfGivenUp) {
  Root root(3);
  auto first = root.join(1, 3);
  auto second = root.join(2, 3);
  ASSERT_TRUE(first && second);
  first->send(line_of(Verdict{Failure::silent({2, 3, "there", 1, 0}, {}, 9)}));  // only rank 0 judges others
  first->send(line_of(Verdict{Failure::silent({0, 3, "here", 1, 0}, {}, 9)}));
  ASSERT_TRUE(comes_true([&] { return root.told().size() == 1; }));
  EXPECT_EQ(root.told().front().who.rank, 0);
  std::optional<WatchMessage> heard;
  while (const auto line = second->wait_for_line(20)) {
    heard = read_watch_message(*line);
    if (heard && std::holds_alternative<Verdict>(*heard)) break;
  }
  ASSERT_TRUE(heard && std::holds_alternative<Verdict>(*heard));
  EXPECT_EQ(std::get<Verdict>(*heard).failure.who.rank, 0);
}

TEST(WatchCoordinator, APeerThatReadsNothingHoldsNobodyUp) {
  Root root(3);
  auto deaf = root.join(1, 3);
  auto listening = root.join(2, 3);
  ASSERT_TRUE(deaf && listening);
  Failure failure = Failure::gone({0, 3, "here", 1, 0}, {});
  failure.code = ExitCode::kData;
  const Stopwatch watch;
  root.watch().report(failure);
  EXPECT_LT(watch.seconds(), 20);
  EXPECT_THAT(root.told(), SizeIs(1));
}

/// A run of three ranks in which nothing goes on, as rank 0 hears of it.
class Standing {
 public:
  /// Rank 1 waits in an all-reduce after step 12.
  Standing(int64_t step_of_2, const char* operation_of_2) : of_2_(waits(step_of_2, operation_of_2)) {
    for (int64_t rank : {1, 2}) {
      auto connection = root_.join(rank, 3);
      if (connection) ranks_.push_back(std::move(*connection));
    }
  }

  /// Both have waited in vain. Rank 1 leaves before it is answered, and its word is the last that it says.
  void rank_1_gives_up() {
    beat();
    ranks_.at(0).send(line_of(Beat{{.phase = "training", .step = 12, .waits_in = "", .seconds = 0}}));
    ranks_.at(0).send(line_of(Lost{}));
    ranks_.at(0).flush();
    ranks_.erase(ranks_.begin());
  }
  void beat() {
    if (ranks_.size() > 1) ranks_.front().send(line_of(Beat{waits(12, "an all-reduce")}));
    ranks_.back().send(line_of(Beat{of_2_}));
    for (LineSocket& rank : ranks_) rank.flush();
  }
  Root& root() { return root_; }

 private:
  static ActivityStatus waits(int64_t step, const char* operation) {
    return {.phase = "training", .step = step, .waits_in = operation, .seconds = 600};
  }

  Root root_{3};
  ActivityStatus of_2_;
  std::vector<LineSocket> ranks_;
};

TEST(WatchCoordinator, WhereAllRanksWaitItSaysInWhatAndNamesTheOneThatWaitsElsewhere) {
  Activity::of_this_process().begin("training");
  Activity::of_this_process().at_step(12);
  const Activity::Waiting waiting("an all-reduce");
  Standing alike(12, "an all-reduce"), unlike(12, "a broadcast");
  for (Standing* run : {&alike, &unlike}) run->rank_1_gives_up();
  ASSERT_TRUE(comes_true([&] {
    for (Standing* run : {&alike, &unlike}) run->beat();
    return alike.root().told().size() == 1 && unlike.root().told().size() == 1;
  }));
  const Failure nobody = alike.root().told().front(), odd = unlike.root().told().front();
  EXPECT_EQ(nobody.who.rank, RankIdentity::kNobody);
  EXPECT_EQ(odd.who.rank, 2);
  EXPECT_THAT(nobody.block(), HasSubstr("ranks 0-2: training after step 12, waiting in an all-reduce for"));
  EXPECT_THAT(odd.block(),
              AllOf(HasSubstr("ranks 0-1: training after step 12, waiting in an all-reduce for"),
                    HasSubstr("rank 2: training after step 12, waiting in a broadcast for 10 min")));
  for (const Failure& failure : {nobody, odd}) {
    EXPECT_THAT(failure.block(), Not(HasSubstr("ended without a word"))) << "rank 1 left as it had to";
  }
}

}  // namespace
}  // namespace adtrain
