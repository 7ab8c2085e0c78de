#include "data/PrefetchedBatches.h"

#include <utility>

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "base/Clock.h"

namespace adtrain {

PrefetchedBatches::PrefetchedBatches(const Feed& feed, int64_t workers, at::Device device)
    : feed_(feed), device_(device), uploader_(device), ahead_(2 * workers) {
  for (int64_t i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
}

PrefetchedBatches::~PrefetchedBatches() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

Batch PrefetchedBatches::next() {
  const Stopwatch waiting;
  if (!uploader_.busy()) uploader_.start(take());
  Batch batch = uploader_.finish();
  if (uploader_.to_gpu()) uploader_.start(take());
  seconds_waited_ += waiting.seconds();
  return batch;
}

std::string PrefetchedBatches::description() const {
  return workers_.empty()
             ? "cut by the training thread"
             : fmt::format("cut by {} thread{}", workers_.size(), workers_.size() == 1 ? "" : "s");
}

int64_t PrefetchedBatches::history_bytes() const {
  return device_.is_cpu() ? feed_.windows.bytes() : 0;
}

Batch PrefetchedBatches::take() {
  if (workers_.empty()) return assemble(next_ticket_++);
  Assembled next;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_.contains(next_ticket_); });
    next = std::move(ready_.extract(next_ticket_++).mapped());
  }
  changed_.notify_all();
  if (next.failure) std::rethrow_exception(next.failure);
  return next.batch;
}

double PrefetchedBatches::take_seconds_waited() {
  return std::exchange(seconds_waited_, 0.0);
}

Batch PrefetchedBatches::assemble(int64_t ticket) const {
  const BatchShare& share = feed_.share;
  const int64_t step = ticket / share.accumulation;
  const int64_t first =
      feed_.first_sample + step * share.global_batch() + share.first_row(ticket % share.accumulation);
  std::vector<int64_t> samples(static_cast<size_t>(share.micro_batch));
  for (int64_t i = 0; i < share.micro_batch; ++i)
    samples[static_cast<size_t>(i)] = feed_.order.sample_at(first + i);
  Batch batch = feed_.windows.assemble(samples);
  if (feed_.windows.packed()) {
    const int64_t first_of_step = feed_.first_sample + step * share.global_batch();
    int64_t targets = 0;
    for (int64_t row = 0; row < share.global_batch(); ++row)
      targets += feed_.windows.filled(feed_.order.sample_at(first_of_step + row));
    batch.step_targets = at::full({1}, targets, at::kLong);
  }
  return uploader_.to_gpu() ? batch.pinned() : batch;
}

void PrefetchedBatches::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || next_to_assemble_ < next_ticket_ + ahead_; });
    if (stopping_) return;
    const int64_t ticket = next_to_assemble_++;
    lock.unlock();
    Assembled next;
    try {
      next.batch = assemble(ticket);
    } catch (...) {
      next.failure = std::current_exception();
    }
    lock.lock();
    ready_.emplace(ticket, std::move(next));
    changed_.notify_all();
  }
}

}  // namespace adtrain
