#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "training/TrainingOptions.h"

namespace adtrain {

/// The batch sizes that a run has once found by trials, for a start that continues it and leaves them open.
/// Sizes that were given, and failed perhaps, are not kept: they are found now, for the same global batch.
struct BatchSizesOfRun {
  std::optional<int64_t> train_batch_size;
  std::optional<int64_t> accumulation;
  std::optional<int64_t> global_batch_size;  ///< where the others are to be found anew
  std::optional<int64_t> test_batch_size;

  /// What an earlier start has trained with.
  struct Earlier {
    TrainingOptions options;
    int64_t ranks;
    bool found;  ///< whether its batch sizes were found by trials
  };
  static BatchSizesOfRun kept(const TrainingOptions& options, const Earlier& earlier, int64_t ranks);
  void put_into(TrainingOptions& options) const;

  nlohmann::json to_json() const;
  static BatchSizesOfRun from(const nlohmann::json& json);
};

}  // namespace adtrain
