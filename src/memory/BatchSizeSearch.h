#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "adtrain/batch_size.h"
#include "collectives/Communicator.h"
#include "memory/MemoryMeter.h"

namespace adtrain {

/// The search of include/adtrain/batch_size.h.
///
/// Memory decides by the rank with the least headroom, the bytes between a trial's peak and the target. All
/// ranks learn it after each trial, so that all of them try the same batch sizes. Between two trials that
/// fit, headroom falls nearly linearly with the batch, so the binary search first tries where the line
/// between the nearest trials on both sides of the target meets it (regula falsi), and then halves what
/// remains.
class BatchSizeSearch {
 public:
  /// Borrows both. Collective: prints which devices there are. The target of each rank is what its device has
  /// in use now, and the safety margin's share of what is free now.
  BatchSizeSearch(Communicator& communicator, MemoryMeter& meter, BatchSizeOptions options);

  /// Whether this batch size fits, by one trial. Collective.
  bool still_fits(int64_t batch, const std::function<double(int64_t batch)>& trial);
  /// Collective.
  BatchSizeDecision run(const std::function<double(int64_t batch)>& trial);

 private:
  bool fits(const char* phase, int64_t batch, const std::function<double(int64_t)>& trial);
  int64_t next_between(int64_t fitting, int64_t failing);
  std::optional<double> predicted_headroom(int64_t batch) const;
  /// As measured, or predicted where memory was refused.
  std::optional<double> headroom_at(int64_t batch) const;
  BatchSizeDecision decide(int64_t largest, bool limited_by_memory) const;
  int64_t allowed(int64_t batch) const;
  void tell(const std::string& sentence) const;
  void describe_devices();

  Communicator& communicator_;
  MemoryMeter& meter_;
  BatchSizeOptions options_;
  int64_t target_ = 0;  ///< of this rank
  std::vector<BatchSizeTrial> trials_;
  int predictions_left_ = 4;
};

/// Of `world_size` ranks together; 0 where the trial has no time.
double samples_per_second(const BatchSizeTrial& trial, int64_t world_size);

/// A decision with its trials, for programs. "samples_per_second" is of all ranks together.
nlohmann::json to_json(const BatchSizeDecision& decision, int64_t world_size);
/// The trials as aligned lines for people.
std::vector<std::string> table_of(const BatchSizeDecision& decision, int64_t world_size);

}  // namespace adtrain
