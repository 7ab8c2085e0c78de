#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/Random.h"
#include "environments/worker/WorkerPool.h"

namespace adtrain {

/// So many environments of a task, which begin with seeds that follow from `seed`. The pool was made without
/// env_overlap, so they are one batch. Throws WorkerFault.
inline std::unique_ptr<WorkerBatch> make_environments(WorkerPool& pool, int64_t task, int64_t count,
                                                      uint64_t seed) {
  constexpr uint64_t kSeeds = uint64_t{1} << 31;
  std::vector<PlaceOrder> places;
  for (int64_t place = 0; place < count; ++place)
    places.push_back({task, static_cast<int64_t>(seed_of(seed, place) % kSeeds)});
  return std::move(pool.make(places).front());
}

}  // namespace adtrain
