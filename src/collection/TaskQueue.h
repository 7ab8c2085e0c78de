#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace adtrain {

/// Distributes tasks to threads; the thread that owns the queue waits for their results.
class TaskQueue {
 public:
  /// Runs a task; returns its final return, or nothing where it was stopped.
  using Work = std::function<std::optional<double>(int64_t task)>;

  /// `stop`, which may be empty, is called before every task.
  TaskQueue(std::vector<int64_t> tasks, std::function<bool()> stop);
  /// Starts no more tasks, and waits for the threads.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// Starts threads that each take tasks until none is left or the queue stops.
  void start(int64_t threads, const Work& work) {
    start_each(threads, [work] { return work; });
  }
  /// The same of threads that each make their own work, with what it needs, and let it go at their end.
  void start_each(int64_t threads, const std::function<Work()>& make_work);
  /// Whether tasks should stop. Thread-safe.
  bool stopping();
  /// Waits for the next finished task's return; nothing when all threads have ended. Rethrows a thread's
  /// exception.
  std::optional<double> next_return();

 private:
  void take_turns(const std::function<Work()>& make_work);
  std::optional<int64_t> take();

  std::vector<int64_t> tasks_;
  std::function<bool()> stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t dealt_ = 0;
  std::vector<double> returns_;
  size_t taken_ = 0;
  int64_t running_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace adtrain
