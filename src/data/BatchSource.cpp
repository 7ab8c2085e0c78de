#include "data/BatchSource.h"

#include <utility>

#include "base/Clock.h"

namespace adtrain {

BatchSource::BatchSource(const BatchAssembler& assembler, SampleOrder order, BatchShare share,
                         int64_t first_sample, int64_t workers)
    : assembler_(assembler), order_(order), share_(share), first_sample_(first_sample), ahead_(2 * workers) {
  for (int64_t i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
}

BatchSource::~BatchSource() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

Batch BatchSource::next() {
  const Stopwatch waiting;
  Batch batch;
  if (workers_.empty()) {
    batch = assemble(next_ticket_);
  } else {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return failure_ || ready_.contains(next_ticket_); });
    if (failure_) std::rethrow_exception(failure_);
    batch = std::move(ready_.extract(next_ticket_).mapped());
  }
  {
    const std::lock_guard lock(mutex_);
    ++next_ticket_;
  }
  changed_.notify_all();
  seconds_waited_ += waiting.seconds();
  return batch;
}

double BatchSource::take_seconds_waited() {
  return std::exchange(seconds_waited_, 0.0);
}

Batch BatchSource::assemble(int64_t ticket) const {
  const int64_t step = ticket / share_.accumulation;
  const int64_t micro_step = ticket % share_.accumulation;
  const int64_t first = first_sample_ + step * share_.global_batch() +
                        (micro_step * share_.world_size + share_.rank) * share_.micro_batch;
  std::vector<int64_t> samples(static_cast<size_t>(share_.micro_batch));
  for (int64_t i = 0; i < share_.micro_batch; ++i)
    samples[static_cast<size_t>(i)] = order_.sample_at(first + i);
  return assembler_.assemble(samples);
}

void BatchSource::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || next_to_assemble_ < next_ticket_ + ahead_; });
    if (stopping_) return;
    const int64_t ticket = next_to_assemble_++;
    lock.unlock();
    Batch batch;
    std::exception_ptr failure;
    try {
      batch = assemble(ticket);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    ready_.emplace(ticket, std::move(batch));
    if (failure) failure_ = failure;
    changed_.notify_all();
  }
}

}  // namespace adtrain
