#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "training/TrainingOptions.h"

namespace adtrain {

/// The batch sizes with which a run has trained until now: a run that is continued keeps what it once found.
struct BatchSizesOfRun {
  std::optional<int64_t> train_batch_size;
  std::optional<int64_t> accumulation;
  std::optional<int64_t>
      global_batch_size;  ///< where the number of ranks has changed: the rest is found anew
  std::optional<int64_t> test_batch_size;

  /// Those that `options` leave open, as they were in `earlier`, on `earlier_ranks` and now on `ranks`.
  static BatchSizesOfRun kept(const TrainingOptions& options, const TrainingOptions& earlier,
                              int64_t earlier_ranks, int64_t ranks);
  void put_into(TrainingOptions& options) const;

  nlohmann::json to_json() const;
  static BatchSizesOfRun from(const nlohmann::json& json);
};

}  // namespace adtrain
