#include "base/ProcessEnd.h"

#include <cstdio>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace adtrain {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kCode = 3;

/// Leaves a line in stdio's buffer of standard error, and a handler that would write another.
[[noreturn]] void end_with_something_buffered() {
  static char buffer[BUFSIZ];
  std::setvbuf(stderr, buffer, _IOFBF, sizeof(buffer));
  std::atexit([] { std::fputs("from a handler;", stderr); });
  std::fputs("buffered;", stderr);
  end_process(kCode);
}

TEST(ProcessEnd, WritesWhatIsBufferedAndKeepsTheCode) {
  EXPECT_EXIT(end_with_something_buffered(), ExitedWithCode(kCode), HasSubstr("buffered;"));
}

TEST(ProcessEnd, RunsExitHandlersOnlyWhereAToolMayWaitForThem) {
  EXPECT_EXIT(
      {
        setenv("LD_PRELOAD", "", /*overwrite=*/1);
        end_with_something_buffered();
      },
      ExitedWithCode(kCode), HasSubstr("from a handler;"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "a GPU's driver is loaded here";
  EXPECT_EXIT(
      {
        unsetenv("LD_PRELOAD");
        end_with_something_buffered();
      },
      ExitedWithCode(kCode), Not(HasSubstr("from a handler;")));
#endif
}

}  // namespace
}  // namespace adtrain
