#include "watchdog/StoppedPeer.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace adtrain {
namespace {

/// A child that has stopped itself and ends when it is woken.
class StoppedChild {
 public:
  StoppedChild() : process_(fork()) {
    if (process_ == 0) {
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(process_, &status, WUNTRACED), process_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  ~StoppedChild() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  RankIdentity identity() const { return {1, 2, "here", process_, start_of_process(process_)}; }
  /// Whether it has been woken, and ended.
  bool ends() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOWAIT) == 0;
  }
  bool still_stopped() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WCONTINUED | WNOWAIT | WNOHANG) == 0 &&
           info.si_pid == 0;
  }

 private:
  pid_t process_;
};

TEST(StoppedPeer, IsWoken) {
  const StoppedChild child;
  wake_if_stopped(child.identity());
  EXPECT_TRUE(child.ends());
}

TEST(StoppedPeer, AProcessThatHasItsIdByNowIsLeftAlone) {
  const StoppedChild child;
  RankIdentity earlier = child.identity();
  EXPECT_GT(earlier.started, 0);
  earlier.started -= 1;
  wake_if_stopped(earlier);
  earlier.started = 0;  // not known
  wake_if_stopped(earlier);
  EXPECT_TRUE(child.still_stopped());
}

TEST(StoppedPeer, WhoHasEndedHasNoStart) {
  EXPECT_EQ(start_of_process(-1), 0);
  EXPECT_GT(start_of_process(getpid()), 0);
}

}  // namespace
}  // namespace adtrain
