#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/SharedMemory.h"
#include "environments/worker/PlayNotices.h"
#include "environments/worker/WorkerBatch.h"
#include "environments/worker/WorkerHello.h"
#include "environments/worker/WorkerOptions.h"
#include "environments/worker/WorkerProcess.h"

namespace adtrain {

/// The worker processes of a rank. For one thread at a time, which must live as long as they.
class WorkerPool {
 public:
  /// Starts `env_workers` of them, or fewer where there will be nothing for some to play: make() will be
  /// called for `most_places` at most. Waits for what they say. `say` receives what the user should know and
  /// stops nothing. Throws ConfigError where they cannot be started, WorkerFault where one fails or they
  /// differ.
  WorkerPool(const WorkerOptions& options, PlayNotices::Say say,
             int64_t most_places = std::numeric_limits<int64_t>::max());

  const WorkerOptions& options() const { return options_; }
  const WorkerHello& hello() const { return hello_; }
  const PlayNotices& notices() const { return notices_; }

  /// Makes environments for these places and resets them: one batch, or with env_overlap two halves, in
  /// order. Former batches must be gone. Throws WorkerFault.
  std::vector<std::unique_ptr<WorkerBatch>> make(const std::vector<PlaceOrder>& places);

 private:
  std::vector<WorkerBatch::Share> shares_of(int64_t places) const;

  WorkerOptions options_;
  PlayNotices notices_;
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  WorkerHello hello_;
  std::unique_ptr<SharedMemory> segment_;
};

}  // namespace adtrain
