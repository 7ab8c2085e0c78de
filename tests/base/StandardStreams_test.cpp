#include "base/StandardStreams.h"

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Error.h"

namespace adtrain {
namespace {

/// A pipe of 4 KiB; whoever wants it full writes that much.
struct Pipe {
  Pipe() {
    EXPECT_EQ(pipe(ends), 0);
    EXPECT_EQ(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
  }
  ~Pipe() {
    close(ends[1]);
    close_reader();
  }
  void close_reader() {
    if (ends[0] >= 0) close(ends[0]);
    ends[0] = -1;
  }
  int ends[2];
};

/// What `act` returns in a child whose stream `descriptor` is the pipe's.
template <class Act>
int in_child(const Pipe& pipe, int descriptor, Act act) {
  const pid_t child = fork();
  if (child == 0) {
    close(pipe.ends[0]);
    secure_standard_streams();
    dup2(pipe.ends[1], descriptor);
    int code = 0;
    try {
      code = act();
    } catch (const Error& error) {
      code = static_cast<int>(error.exit_code());
    }
    _exit(code);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const std::string kMegabyte(1 << 20, 'x');

TEST(StandardStreams, AnErrorThatNobodyReadsHoldsNobodyUp) {
  const Pipe pipe;
  ASSERT_EQ(write(pipe.ends[1], kMegabyte.data(), 4096), 4096);
  EXPECT_EQ(in_child(pipe, STDERR_FILENO,
                     [] {
                       print_error(kMegabyte, 0.3);
                       const Stopwatch watch;
                       for (int i = 0; i < 100; ++i) print_error(kMegabyte, 60);
                       return watch.seconds() < 30 ? 0 : 1;  // it was waited for once
                     }),
            0);
}

TEST(StandardStreams, AnErrorArrivesWhole) {
  const Pipe pipe;
  EXPECT_EQ(in_child(pipe, STDERR_FILENO,
                     [] {
                       print_error("what was found\n");
                       return 0;
                     }),
            0);
  char arrived[64] = "";
  EXPECT_EQ(read(pipe.ends[0], arrived, sizeof arrived - 1), 15);
  EXPECT_STREQ(arrived, "what was found\n");
}

TEST(StandardStreams, WhoeverClosesAnAnswerOrAnErrorHasReadEnough) {
  Pipe pipe;
  pipe.close_reader();
  EXPECT_EQ(in_child(pipe, STDOUT_FILENO,
                     [] {
                       print_answer(kMegabyte);
                       print_answer("more");
                       return 0;
                     }),
            0);
  EXPECT_EQ(in_child(pipe, STDERR_FILENO,
                     [] {
                       print_error(kMegabyte);
                       return 0;
                     }),
            0);
}

TEST(StandardStreams, NoFileTakesThePlaceOfAStreamThatIsNotThere) {
  const Pipe pipe;
  EXPECT_EQ(in_child(pipe, STDERR_FILENO,
                     [] {
                       for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
                       secure_standard_streams();
                       print_answer("an answer");
                       print_error("an error");
                       return open("/dev/null", O_RDONLY) > STDERR_FILENO ? 0 : 1;
                     }),
            0);
}

TEST(StandardStreams, AnAnswerThatIsLostIsAnError) {
  const Pipe pipe;
  EXPECT_EQ(in_child(pipe, STDERR_FILENO,
                     [] {
                       const int full = open("/dev/full", O_WRONLY);
                       if (full < 0) return 3;  // a system without it
                       dup2(full, STDOUT_FILENO);
                       print_answer("an answer");
                       return 0;
                     }),
            3);
}

}  // namespace
}  // namespace adtrain
