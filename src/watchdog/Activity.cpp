#include "watchdog/Activity.h"

#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {

std::string ActivityStatus::text() const {
  if (phase.empty()) return "not known";
  return fmt::format("{}{}{} for {}", phase, step ? fmt::format(" after step {}", *step) : "",
                     waits_in.empty() ? "" : ", waiting in " + waits_in, human_duration(seconds));
}

Activity& Activity::of_this_process() {
  static Activity activity;
  return activity;
}

void Activity::begin(const std::string& phase) {
  const std::scoped_lock lock(mutex_);
  doing_.phase = phase;
  since_.restart();
}

void Activity::at_step(int64_t step) {
  const std::scoped_lock lock(mutex_);
  doing_.step = step;
  since_.restart();
}

void Activity::wait_in(const char* operation) {
  const std::scoped_lock lock(mutex_);
  doing_.waits_in = operation;
  waits_ = !doing_.waits_in.empty();
  since_.restart();
}

std::string Activity::to_go_on() const {
  return continues_by_resume_ ? "start again with --resume" : "start the same command again";
}

ActivityStatus Activity::now() const {
  const std::scoped_lock lock(mutex_);
  ActivityStatus doing = doing_;
  doing.seconds = since_.seconds();
  return doing;
}

}  // namespace adtrain
