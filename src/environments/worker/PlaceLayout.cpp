#include "environments/worker/PlaceLayout.h"

namespace adtrain {
namespace {

constexpr std::array kNames = {"task",   "seed",       "action",    "observation", "final_observation",
                               "reward", "terminated", "truncated", "cut"};

size_t bytes_of(const Space& space) {
  return static_cast<size_t>(space.size()) * size_of(space.type);
}

}  // namespace

PlaceLayout::PlaceLayout(int64_t places, const Space& observation, const Space& action, size_t offset)
    : places_(places),
      row_bytes_{sizeof(int64_t),
                 sizeof(int64_t),
                 bytes_of(action),
                 bytes_of(observation),
                 bytes_of(observation),
                 sizeof(double),
                 1,
                 1,
                 1},
      end_(offset) {
  static_assert(kNames.size() == kArrays);
  constexpr size_t kCacheLine = 64;
  for (size_t i = 0; i < kArrays; ++i) {
    offsets_[i] = (end_ + kCacheLine - 1) / kCacheLine * kCacheLine;
    end_ = offsets_[i] + static_cast<size_t>(places) * row_bytes_[i];
  }
}

nlohmann::json PlaceLayout::json(int64_t first, int64_t count) const {
  nlohmann::json described = {{"places", count}};
  for (size_t i = 0; i < kArrays; ++i) {
    described[kNames[i]] = offsets_[i] + static_cast<size_t>(first) * row_bytes_[i];
  }
  return described;
}

}  // namespace adtrain
