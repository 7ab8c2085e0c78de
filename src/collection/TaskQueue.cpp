#include "collection/TaskQueue.h"

#include <algorithm>
#include <utility>

namespace adtrain {

TaskQueue::TaskQueue(std::vector<int64_t> tasks, std::function<bool()> stop)
    : tasks_(std::move(tasks)), stop_(std::move(stop)) {}

TaskQueue::~TaskQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void TaskQueue::start_each(int64_t threads, const std::function<Work()>& make_work) {
  running_ = std::min(threads, static_cast<int64_t>(tasks_.size()));
  for (int64_t i = 0, count = running_; i < count; ++i) {
    threads_.emplace_back([this, make_work] { take_turns(make_work); });
  }
}

bool TaskQueue::stopping() {
  const std::lock_guard lock(mutex_);
  if (!stopping_ && stop_ && stop_()) stopping_ = true;
  return stopping_;
}

std::optional<double> TaskQueue::next_return() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return taken_ < returns_.size() || running_ == 0; });
  if (taken_ < returns_.size()) return returns_[taken_++];
  if (failure_) std::rethrow_exception(failure_);
  return std::nullopt;
}

void TaskQueue::take_turns(const std::function<Work()>& make_work) {
  try {
    const Work work = make_work();
    while (const std::optional<int64_t> task = take()) {
      const std::optional<double> earned = work(*task);
      const std::lock_guard lock(mutex_);
      if (earned) returns_.push_back(*earned);
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    stopping_ = true;
  }
  const std::lock_guard lock(mutex_);
  --running_;
  changed_.notify_all();
}

std::optional<int64_t> TaskQueue::take() {
  if (stopping()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (dealt_ == tasks_.size()) return std::nullopt;
  return tasks_[dealt_++];
}

}  // namespace adtrain
