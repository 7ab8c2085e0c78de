#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "environments/Space.h"

namespace adtrain {

/// What is kept of each environment in the shared segment, an array of rows for each.
enum class PlaceArray {
  kTask,              ///< int64: its number
  kSeed,              ///< int64
  kAction,            ///< as the action space has it
  kObservation,       ///< what is observed now: after an episode's end, the first observation of the next
  kFinalObservation,  ///< the last observation of an episode, where the step ended one
  kReward,            ///< float64
  kTerminated,        ///< bool
  kTruncated,         ///< bool
  kCut,  ///< bool: this is the last step that the episode may have; after it, whether that ended it
};

/// Where the arrays of some environments lie in a shared segment. A value.
class PlaceLayout {
 public:
  /// `places` environments; the arrays begin at `offset` bytes, each at a multiple of a cache line.
  PlaceLayout(int64_t places, const Space& observation, const Space& action, size_t offset);

  int64_t places() const { return places_; }
  /// Behind the last array.
  size_t end() const { return end_; }
  size_t offset_of(PlaceArray array) const { return offsets_[static_cast<size_t>(array)]; }
  size_t row_bytes(PlaceArray array) const { return row_bytes_[static_cast<size_t>(array)]; }

  /// The layout of `count` of them from `first` on, as a worker reads it.
  nlohmann::json json(int64_t first, int64_t count) const;

 private:
  static constexpr size_t kArrays = 9;

  int64_t places_;
  std::array<size_t, kArrays> row_bytes_;
  std::array<size_t, kArrays> offsets_{};
  size_t end_;
};

}  // namespace adtrain
