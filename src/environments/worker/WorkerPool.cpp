#include "environments/worker/WorkerPool.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "environments/worker/WorkerFault.h"

namespace adtrain {
namespace {

constexpr int64_t kHalves = 2;

/// The part of `total` that is the `index`-th of `parts` nearly equal ones: where it begins.
int64_t begin_of_part(int64_t total, int64_t index, int64_t parts) {
  return total * index / parts;
}

/// How many processes have an environment to play where there are so many.
int64_t processes_for(int64_t places, const WorkerOptions& options) {
  const int64_t halves = options.env_overlap ? kHalves : 1;
  const int64_t in_larger_half = places / halves + (places % halves == 0 ? 0 : 1);
  return std::max<int64_t>(1, std::min(options.env_workers, in_larger_half));
}

}  // namespace

WorkerPool::WorkerPool(const WorkerOptions& options, PlayNotices::Say say, int64_t most_places)
    : options_(options), notices_(std::move(say)) {
  for (int64_t i = processes_for(most_places, options); i > 0; --i)
    workers_.push_back(std::make_unique<WorkerProcess>(options));
  hello_ = WorkerHello::read(workers_.front()->hello(), *options.env_worker);
  for (size_t i = 1; i < workers_.size(); ++i) {
    if (WorkerHello::read(workers_[i]->hello(), *options.env_worker).is_like(hello_)) continue;
    throw WorkerFault(
        ExitCode::kUsage,
        fmt::format("{}: two of env_workers = {} processes found other spaces or tasks; expected the same "
                    "in each: make_env and TASKS must not depend on what differs between processes, such as "
                    "the order of a set",
                    *options.env_worker, options.env_workers));
  }
}

std::vector<WorkerBatch::Share> WorkerPool::shares_of(int64_t places) const {
  const int64_t workers = std::min(std::ssize(workers_), places);
  std::vector<WorkerBatch::Share> shares;
  for (int64_t i = 0; i < workers; ++i) {
    const int64_t first = begin_of_part(places, i, workers);
    shares.push_back(
        {workers_[static_cast<size_t>(i)].get(), first, begin_of_part(places, i + 1, workers) - first});
  }
  return shares;
}

std::vector<std::unique_ptr<WorkerBatch>> WorkerPool::make(const std::vector<PlaceOrder>& places) {
  const int64_t count = std::ssize(places);
  const int64_t halves = options_.env_overlap ? std::min(kHalves, count) : 1;
  std::vector<PlaceLayout> layouts;
  for (int64_t half = 0; half < halves; ++half) {
    const int64_t size = begin_of_part(count, half + 1, halves) - begin_of_part(count, half, halves);
    layouts.emplace_back(size, hello_.observation, hello_.action, half == 0 ? 0 : layouts.back().end());
  }
  segment_ = std::make_unique<SharedMemory>(
      layouts.back().end(),
      SharedMemory::Purpose{
          .name = "adtrain-environments", .sharers = "environments", .advice = "lower eval_batch"});

  std::vector<nlohmann::json> told(workers_.size(), {{"bytes", segment_->size()}});
  for (nlohmann::json& layout : told) layout["halves"] = nlohmann::json::array();
  std::vector<std::unique_ptr<WorkerBatch>> batches;
  for (int64_t half = 0; half < halves; ++half) {
    const PlaceLayout& layout = layouts[static_cast<size_t>(half)];
    const std::vector<WorkerBatch::Share> shares = shares_of(layout.places());
    for (size_t i = 0; i < told.size(); ++i) {
      const auto [worker, first, places_of_worker] =
          i < shares.size() ? shares[i] : WorkerBatch::Share{nullptr, 0, 0};
      told[i]["halves"].push_back(layout.json(first, places_of_worker));
    }
    const auto first = places.begin() + begin_of_part(count, half, halves);
    batches.push_back(std::make_unique<WorkerBatch>(
        WorkerBatch::Context{options_, hello_, notices_}, segment_->data(), layout, static_cast<size_t>(half),
        shares, std::vector<PlaceOrder>(first, first + layout.places())));
  }
  for (size_t i = 0; i < workers_.size(); ++i) workers_[i]->lay_out(told[i], segment_->file());
  for (const auto& batch : batches) batch->begin_reset();
  for (const auto& batch : batches) batch->finish_reset();
  return batches;
}

}  // namespace adtrain
