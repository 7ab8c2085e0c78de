#include "collectives/LongWork.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include <ATen/ops/empty.h>

#include "base/InParallel.h"
#include "collectives/Agreement.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr auto kLongestPause = std::chrono::milliseconds(100);

/// So many results are exchanged at once, which bounds what padding them to one length takes.
constexpr size_t kResultsAtOnce = 65536;

/// Lengths before, so that the results may hold any bytes.
std::string packed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    const uint64_t size = text.size();
    all.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
  }
  return all;
}

std::vector<std::string> unpacked(const std::string& all) {
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size();) {
    uint64_t size = 0;
    all.copy(reinterpret_cast<char*>(&size), sizeof size, at);
    texts.push_back(all.substr(at + sizeof size, size));
    at += sizeof size + size;
  }
  return texts;
}

}  // namespace

void LongWork::run(int64_t pieces, const std::function<void(std::atomic<int64_t>& done)>& work) {
  std::atomic<int64_t> done = 0;
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::exception_ptr failure;
  std::jthread worker([&] {
    std::exception_ptr thrown;
    try {
      work(done);
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    failure = thrown;
    ended = true;
    changed.notify_all();
  });
  try {
    auto pause = kFirstPause;
    bool told = false;  // the other ranks, that this one's work has ended
    // Work that is to stop ends soon, and then nobody waits for the next exchange.
    for (bool all_ended = false; !all_ended;
         pause = stopping_ ? kFirstPause : std::min(2 * pause, kLongestPause)) {
      {
        std::unique_lock lock(mutex);
        changed.wait_for(lock, pause, [&] { return ended && !told; });
        if (failure) std::rethrow_exception(failure);
        told = ended;
      }
      at::Tensor sums = at::empty({4}, at::kLong);
      auto* const values = sums.data_ptr<int64_t>();
      values[0] = told ? 1 : 0;
      values[1] = done;
      values[2] = pieces;
      values[3] = wants_to_stop_ && wants_to_stop_() ? 1 : 0;
      communicator_.all_reduce(sums, ReduceOp::kSum);
      all_ended = values[0] == communicator_.world_size();
      if (values[3] > 0) stopping_ = true;
      if (progress_) progress_(values[1], values[2]);
    }
  } catch (...) {
    // Nobody needs the rest of the work, but it must end before what it uses is destroyed. The others must
    // not take this rank for one that works and keeps them waiting: it still waits in the exchange.
    stopping_ = true;
    const Activity::Waiting waiting("an all-reduce");
    worker.join();
    throw;
  }
}

std::vector<std::string> LongWork::compute(size_t count, size_t threads,
                                           const std::function<std::string(size_t)>& result) {
  const auto world = static_cast<size_t>(communicator_.world_size());
  const auto rank = static_cast<size_t>(communicator_.rank());
  std::vector<std::string> mine(count > rank ? (count - rank + world - 1) / world : 0);
  run(static_cast<int64_t>(mine.size()), [&](std::atomic<int64_t>& done) {
    in_parallel(mine.size(), threads, [&](size_t i) {
      if (stopping_) return;
      mine[i] = result(rank + i * world);
      ++done;
    });
  });
  std::vector<std::string> all(count);
  for (size_t first = 0; first * world < count; first += kResultsAtOnce) {
    const auto begin = mine.begin() + static_cast<std::ptrdiff_t>(std::min(first, mine.size()));
    const auto end =
        mine.begin() + static_cast<std::ptrdiff_t>(std::min(first + kResultsAtOnce, mine.size()));
    const std::vector<std::string> texts = gather_texts(communicator_, packed({begin, end}));
    for (size_t other = 0; other < world; ++other) {
      std::vector<std::string> results = unpacked(texts[other]);
      for (size_t i = 0; i < results.size(); ++i) all[other + (first + i) * world] = std::move(results[i]);
    }
  }
  return all;
}

}  // namespace adtrain
