#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace adtrain {

/// Calls work(0) … work(count − 1), each once, by up to `threads` threads, or as many as the system allows.
/// Rethrows the first exception, after all threads have ended.
template <class Work>
void in_parallel(size_t count, size_t threads, const Work& work) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto take_turns = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> workers;
    try {
      for (size_t i = 1; i < std::min(threads, count); ++i) workers.emplace_back(take_turns);
    } catch (const std::system_error&) {  // a limit of the system: those that there are do the work
    }
    take_turns();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace adtrain
