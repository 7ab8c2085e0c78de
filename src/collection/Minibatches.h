#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/Random.h"
#include "collection/PpoSettings.h"

namespace adtrain {

/// Goes over a rollout's samples as PPO does: `epochs` times in a fresh order, a minibatch at a time. `order`
/// holds the samples' numbers, and stays shuffled. Calls `use` with a span of them.
template <class Use>
void for_each_minibatch(const PpoSettings& settings, std::vector<int32_t>& order, RandomStream& random,
                        Use use) {
  const auto batch = static_cast<size_t>(settings.batch_size);
  for (int64_t epoch = 0; epoch < settings.epochs; ++epoch) {
    for (size_t last = order.size(); last-- > 1;) {
      std::swap(order[last], order[random.below(static_cast<uint32_t>(last + 1))]);
    }
    for (size_t begin = 0; begin < order.size(); begin += batch) {
      use(std::span(order).subspan(begin, std::min(batch, order.size() - begin)));
    }
  }
}

}  // namespace adtrain
