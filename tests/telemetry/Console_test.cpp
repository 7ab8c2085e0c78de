#include "telemetry/Console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A console that prints into memory, with a clock that stands still unless it is moved.
class Recorder {
 public:
  explicit Recorder(bool terminal = false, int width = 100)
      : console({.out = open(out_),
                 .warnings = open(warnings_),
                 .terminal = terminal,
                 .width = [this] { return columns; },
                 .seconds = [this] { return now; }}),
        columns(width) {}
  ~Recorder() {
    for (const Stream* stream : {&out_, &warnings_}) {
      std::fclose(stream->file);
      std::free(stream->text);
    }
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  std::string printed() const { return text_of(out_); }
  std::string warned() const { return text_of(warnings_); }
  /// What was printed since the last call.
  std::string news() {
    const std::string all = printed();
    return all.substr(std::exchange(read_, all.size()));
  }

 private:
  struct Stream {
    std::FILE* file = nullptr;
    char* text = nullptr;
    size_t size = 0;
  };
  static std::FILE* open(Stream& stream) { return stream.file = open_memstream(&stream.text, &stream.size); }
  static std::string text_of(const Stream& stream) {
    std::fflush(stream.file);
    return {stream.text, stream.size};
  }
  Stream out_, warnings_;
  size_t read_ = 0;

 public:
  double now = 0;
  Console console;
  int columns;
};

constexpr const char* kErase = "\r\x1b[K";

TEST(Console, PrintsLinesAndMakesWarningsStandOut) {
  Recorder recorder;
  recorder.console.info("hello");
  recorder.console.notice("note");
  recorder.console.warn("careful");
  EXPECT_EQ(recorder.printed(), "hello\nnotice: note\nWARNING: careful\n");
  EXPECT_EQ(recorder.warned(), "adtrain: WARNING: careful\n");
}

TEST(Console, AlignsTheRowsOfABanner) {
  Recorder recorder;
  recorder.console.banner("adtrain", {{"run", "runs/x"}, {"größe", "9"}});
  EXPECT_THAT(recorder.printed(), HasSubstr("━━ adtrain ━"));
  EXPECT_THAT(recorder.printed(), HasSubstr("\n   run    runs/x\n   größe  9\n━"));
}

TEST(Console, ColoursOnlyWhereAskedTo) {
  Recorder plain;
  plain.console.warn("x");
  EXPECT_THAT(plain.printed(), Not(HasSubstr("\x1b")));

  char* text = nullptr;
  size_t size = 0;
  std::FILE* memory = open_memstream(&text, &size);
  Console({.out = memory, .colour = true}).warn("x");
  std::fclose(memory);
  EXPECT_EQ(std::string(text, size), "\x1b[1;33mWARNING:\x1b[0m x\n");
  std::free(text);
}

TEST(Console, ASilentOneSaysNothing) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* memory = open_memstream(&text, &size);
  {
    Console console({.out = memory, .warnings = memory, .enabled = false, .terminal = true});
    console.info("x");
    console.warn("x");
    Progress progress(console, "training", 10, "steps");
    progress.update(5, "");
    progress.update(10, "");
  }
  std::fclose(memory);
  EXPECT_EQ(size, 0U);
  std::free(text);
}

TEST(Console, AFullDiskBehindItIsNoError) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  Console console({.out = full});
  EXPECT_NO_THROW(console.info("x"));
  std::fclose(full);
}

TEST(Console, ElsewhereThanOnATerminalProgressIsALineEveryTenSeconds) {
  Recorder recorder;
  {
    Progress progress(recorder.console, "training", 50000, "steps");
    for (int step = 1; step <= 2500; ++step) {
      recorder.now = 0.01 * step;
      progress.update(step, "loss 1.5");
    }
    EXPECT_EQ(recorder.news(),
              "training   2%  1 000/50 000 steps  8 min 10 s left  loss 1.5\n"
              "training   4%  2 000/50 000 steps  8 min 00 s left  loss 1.5\n");
    recorder.now = 500;
    progress.update(50000, "loss 0.5");
  }
  EXPECT_EQ(recorder.news(), "training 100%  50 000/50 000 steps  in 8 min 20 s  loss 0.5\n");
}

TEST(Console, TheLastStateIsPrintedOnceAlsoWhenWorkStopsEarly) {
  Recorder recorder;
  {
    Progress progress(recorder.console, "training", 100, "steps");
    recorder.now = 2;
    progress.update(40, "");
    EXPECT_THAT(recorder.news(), IsEmpty());
  }
  EXPECT_EQ(recorder.news(), "training  40%  40/100 steps  3.0 s left\n");
  { const Progress untouched(recorder.console, "training", 100, "steps"); }
  EXPECT_THAT(recorder.news(), IsEmpty());
}

TEST(Console, TimeLeftCountsFromWhereTheWorkWasResumed) {
  Recorder recorder;
  {
    Progress progress(recorder.console, "training", 100, "steps", 80);
    recorder.now = 5;
    progress.update(90, "");
  }
  EXPECT_THAT(recorder.news(), HasSubstr("5.0 s left"));
}

TEST(Console, ATerminalShowsOneBarThatIsRedrawnTenTimesASecond) {
  Recorder recorder(/*terminal=*/true, /*width=*/70);
  Progress progress(recorder.console, "training", 100, "steps");
  recorder.now = 0.01;
  progress.update(25, "loss 1.5");
  EXPECT_EQ(recorder.news(), "training ━━━───────────  25%  25/100 steps  0.0 s left  loss 1.5");
  recorder.now = 0.1;
  progress.update(26, "loss 1.5");
  EXPECT_THAT(recorder.news(), IsEmpty());
  recorder.now = 0.12;
  progress.update(50, "loss 1.5");
  EXPECT_EQ(recorder.news(),
            std::string(kErase) + "training ━━━━━━━───────  50%  50/100 steps  0.1 s left  loss 1.5");
}

TEST(Console, OtherLinesClearTheBarAndTheEndReplacesIt) {
  Recorder recorder(/*terminal=*/true);
  {
    Progress progress(recorder.console, "training", 4, "steps");
    progress.update(1, "");
    recorder.news();
    recorder.console.info("saved");
    EXPECT_EQ(recorder.news(), std::string(kErase) + "saved\n");
    recorder.console.info("again");
    EXPECT_EQ(recorder.news(), "again\n");
    recorder.now = 1;
    progress.update(2, "");
    recorder.news();
  }
  EXPECT_EQ(recorder.news(), std::string(kErase) + "training  50%  2/4 steps  1.0 s left\n");
}

TEST(Console, ABarNeverReachesTheLastColumn) {
  for (const int width : {5, 20, 33, 60, 200}) {
    Recorder recorder(/*terminal=*/true, width);
    Progress progress(recorder.console, "training", 1000, "steps");
    recorder.now = 1;
    progress.update(333, "loss 1.2345  accuracy 56.7%  lr 3.0e-03  12.3 steps/s  394 seq/s");
    const std::string line = recorder.news();
    const auto columns =
        std::count_if(line.begin(), line.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
    EXPECT_LT(columns, width) << line;
    EXPECT_GE(columns, std::min(width - 1, 60)) << line;
  }
}

TEST(Console, ProgressOfNothingIsDone) {
  Recorder recorder;
  {
    Progress progress(recorder.console, "collecting", 0, "tasks");
    progress.update(0, "");
  }
  EXPECT_EQ(recorder.news(), "collecting 100%  0/0 tasks  in 0.0 s\n");
}

}  // namespace
}  // namespace adtrain
