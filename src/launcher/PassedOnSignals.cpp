#include "launcher/PassedOnSignals.h"

#include <ctime>

namespace adtrain {
namespace {

bool ignored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

PassedOnSignals::PassedOnSignals() {
  sigemptyset(&held_back_);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGTSTP}) {
    if (!ignored(number)) sigaddset(&held_back_, number);
  }
  signal(SIGCHLD, SIG_DFL);  // while it is ignored, waitpid() reports no exit codes
  sigaddset(&held_back_, SIGCHLD);
  sigprocmask(SIG_BLOCK, &held_back_, &before_);
}

PassedOnSignals::~PassedOnSignals() {
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> PassedOnSignals::next(double seconds) const {
  const auto whole = static_cast<time_t>(seconds);
  const timespec wait = {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  const int number = sigtimedwait(&held_back_, nullptr, &wait);
  return number > 0 ? std::optional(number) : std::nullopt;
}

}  // namespace adtrain
