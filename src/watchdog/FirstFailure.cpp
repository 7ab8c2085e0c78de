#include "watchdog/FirstFailure.h"

#include <chrono>
#include <utility>

namespace adtrain {

FirstFailure::FirstFailure(std::function<void(const Failure&)> tell)
    : tell_(std::move(tell)), teller_([this] { tell_it(); }) {}

FirstFailure::~FirstFailure() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  teller_.join();
}

void FirstFailure::settle(const Failure& failure, ExitCode code, double seconds_at_work,
                          double seconds_of_waiting) {
  const std::scoped_lock lock(mutex_);
  if (failure_) return;
  deadline_.arm(code, seconds_at_work, seconds_of_waiting);
  failure_ = failure;
  changed_.notify_all();
}

bool FirstFailure::known() const {
  const std::scoped_lock lock(mutex_);
  return failure_.has_value();
}

std::optional<Failure> FirstFailure::get() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

bool FirstFailure::wait_until_told(double seconds) {
  constexpr std::chrono::duration<double> kToBeTold(2);
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> to_be_known(seconds);
  if (!changed_.wait_for(lock, to_be_known, [this] { return failure_.has_value(); })) return false;
  changed_.wait_for(lock, kToBeTold, [this] { return told_; });
  return true;
}

void FirstFailure::tell_it() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || failure_; });
  if (!failure_) return;
  const Failure failure = *failure_;
  lock.unlock();
  tell_(failure);
  lock.lock();
  told_ = true;
  changed_.notify_all();
}

}  // namespace adtrain
