#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "adtrain/communicator.h"

namespace adtrain {

/// What a found batch size is to be good for.
enum class BatchSizePreference {
  kMemory,      ///< the largest that fits
  kThroughput,  ///< the smallest whose samples per second are within 2% of the best
};

struct BatchSizeOptions {
  /// The largest batch size that is tried.
  int64_t largest = 2048;
  /// The share of a device's free memory that a trial may take. A *higher* margin leaves *less* room: 0.9
  /// keeps a tenth free.
  double safety_margin = 0.9;
  /// Where memory limits the batch size, the largest one that fits is multiplied by this.
  double reduction = 0.95;
  BatchSizePreference prefer = BatchSizePreference::kMemory;
  /// The result divides this number, such as a rank's share of a global batch.
  std::optional<int64_t> divides = {};
  /// The bytes that a rank on the CPU may have resident; without it, its share of what the host has
  /// available.
  std::optional<int64_t> cpu_memory_limit = {};
  /// Takes a sentence for the user, on rank 0 alone.
  std::function<void(const std::string&)> log = {};
};

/// One batch size that was tried on all ranks, or on the CPU predicted not to fit: a host that runs out of
/// memory ends processes, so it is not asked for too much.
struct BatchSizeTrial {
  int64_t batch;
  bool predicted;  ///< from the trials before, and not tried; `seconds` is 0 then
  bool fits;       ///< on every rank: no request for memory was refused, and the peak is within the target
  bool refused;    ///< a request for memory was refused on some rank
  int64_t peak_bytes;    ///< in use at the peak, on the rank with the least left
  int64_t target_bytes;  ///< what may be in use there
  double seconds;        ///< as the trial returns them, on the slowest rank; 0 where memory was refused
};

struct BatchSizeDecision {
  int64_t batch;    ///< what to use
  int64_t largest;  ///< that fits, before it is reduced
  int64_t fastest;  ///< the smallest whose samples per second are within 2% of the best
  bool limited_by_memory;
  std::vector<BatchSizeTrial> trials;  ///< in the order in which they were made
};

/// Finds the batch size that fits the memory of every rank: 1, 2, 4, … until one does not fit, then a binary
/// search between the last two. A trial that runs out of memory is taken back and harms no other rank.
///
///     const adtrain::BatchSizeDecision found = adtrain::find_batch_size(group, {}, [&](int64_t batch) {
///       Training trial(batch);          // network, optimizer, batch: gone when the trial ends
///       trial.step();                   // creates the optimizer's state
///       const auto begin = std::chrono::steady_clock::now();
///       trial.step();
///       group.synchronize();
///       return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
///     });
///
/// `trial` takes two steps at least with this batch size per rank, without any collective operation, and
/// returns the seconds of the last. What it allocates must be free again when it returns or throws. An
/// exception that means that memory ran out makes the batch size one that does not fit; any other leaves this
/// function on its rank, and is a failure of the run, as anywhere between two collective operations.
/// Collective: all ranks get the same decision, which the rank with the least memory left determines. Throws
/// std::runtime_error (exit code 8), on every rank, where not even 1 fits, and std::invalid_argument where a
/// share is not above 0 and at most 1, or a number is below 1.
BatchSizeDecision find_batch_size(ProcessGroup& group, const BatchSizeOptions& options,
                                  const std::function<double(int64_t batch)>& trial);

}  // namespace adtrain
