#include "distributed/HeldTermination.h"

#include <cerrno>
#include <csignal>

#include <sys/eventfd.h>
#include <unistd.h>

namespace adtrain::held_termination {
namespace {

volatile std::sig_atomic_t received = 0;
volatile std::sig_atomic_t event = -1;

void remember(int) {
  const int kept = errno;
  received = 1;
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
  return received != 0;
}

int descriptor() {
  if (event < 0) {
    event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (received != 0 && event >= 0) eventfd_write(event, 1);
  }
  return event;
}

void release() {
  if (held()) std::signal(SIGTERM, SIG_DFL);
  if (received == 0) return;
  received = 0;
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
}

}  // namespace adtrain::held_termination
