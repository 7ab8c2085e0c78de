#include "watchdog/LastDeadline.h"

#include <chrono>

#include <unistd.h>

#include "base/Clock.h"
#include "watchdog/Activity.h"

namespace adtrain {

LastDeadline::LastDeadline() : thread_([this] { run(); }) {}

LastDeadline::~LastDeadline() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void LastDeadline::arm(ExitCode code, double seconds_at_work, double seconds_of_waiting) {
  const std::scoped_lock lock(mutex_);
  if (armed_) return;
  armed_ = true;
  code_ = code;
  seconds_at_work_ = seconds_at_work;
  seconds_of_waiting_ = seconds_of_waiting;
  changed_.notify_all();
}

void LastDeadline::run() {
  constexpr auto kLook = std::chrono::milliseconds(50);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || armed_; });
  const Stopwatch since_armed;
  while (!stopping_) {
    const bool waits = Activity::of_this_process().waits();
    if (since_armed.seconds() >= (waits ? seconds_of_waiting_ : seconds_at_work_)) {
      _exit(static_cast<int>(code_));
    }
    changed_.wait_for(lock, kLook);
  }
}

}  // namespace adtrain
