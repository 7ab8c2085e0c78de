#pragma once

#include <cstdint>

namespace adtrain {

/// The protocol between adtrain and a worker, which environment_worker.py describes.
constexpr int64_t kWorkerProtocol = 1;

/// All that is sent but hello, layouts and faults, which are JSON.
struct WorkerMessage {
  enum Kind : uint8_t { kLayout = 'L', kReset = 'R', kStep = 'S', kClose = 'C', kDone = 'D' };

  uint8_t kind = 0;
  uint8_t half = 0;
  uint16_t unused = 0;
  uint32_t number = 0;  ///< of the request, counted; of a layout, its length in bytes
};
static_assert(sizeof(WorkerMessage) == 8);

}  // namespace adtrain
