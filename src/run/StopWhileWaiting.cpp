#include "run/StopWhileWaiting.h"

#include <atomic>

#include "launch/HeldTermination.h"

namespace adtrain {
namespace {

// The handler may run on any thread. It may use lock-free atomics.
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<int> received = 0;

void remember(int signal) {
  received = signal;
}

void handle_unless_others_do(int signal, struct sigaction& before) {
  if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction handle {};
  handle.sa_handler = remember;
  handle.sa_flags = SA_RESTART;
  sigaction(signal, &handle, nullptr);
}

void restore(int signal, const struct sigaction& before) {
  if (before.sa_handler == SIG_DFL) sigaction(signal, &before, nullptr);
}

}  // namespace

StopWhileWaiting::StopWhileWaiting() {
  received = 0;
  handle_unless_others_do(SIGINT, before_int_);
  handle_unless_others_do(SIGTERM, before_term_);
  handle_unless_others_do(SIGHUP, before_hup_);
}

StopWhileWaiting::~StopWhileWaiting() {
  restore(SIGINT, before_int_);
  restore(SIGTERM, before_term_);
  restore(SIGHUP, before_hup_);
  if (const int signal = received.exchange(0); signal != 0) std::raise(signal);
}

int StopWhileWaiting::take() {
  if (const int signal = received.exchange(0); signal != 0) return signal;
  return held_termination::take() ? SIGTERM : 0;
}

const char* StopWhileWaiting::name_of(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "SIGTERM";
  }
}

}  // namespace adtrain
