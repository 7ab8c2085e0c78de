#include "launch/HeldTermination.h"

#include <atomic>
#include <cerrno>
#include <csignal>

#include <sys/eventfd.h>
#include <unistd.h>

namespace adtrain::held_termination {
namespace {

// The handler may run on any thread. It may use lock-free atomics.
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
std::atomic<bool> received = false;
std::atomic<int> event = -1;

void remember(int) {
  const int kept = errno;
  received = true;
  if (event >= 0) eventfd_write(event, 1);
  errno = kept;
}

bool held() {
  struct sigaction current {};
  return sigaction(SIGTERM, nullptr, &current) == 0 && current.sa_handler == remember;
}

}  // namespace

void begin() {
  struct sigaction current {};
  if (sigaction(SIGTERM, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) return;
  struct sigaction hold {};
  hold.sa_handler = remember;
  hold.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &hold, nullptr);
}

bool asked() {
  return received;
}

int descriptor() {
  static const int opened = [] {
    event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (received && event >= 0) eventfd_write(event, 1);
    return event.load();
  }();
  return opened;
}

bool take() {
  return received.exchange(false);
}

void release() {
  if (held()) std::signal(SIGTERM, SIG_DFL);
  if (!take()) return;
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
}

}  // namespace adtrain::held_termination
