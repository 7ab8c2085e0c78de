#pragma once

#include <cstdint>

namespace adtrain {

/// One step of a learning history, as it is held in memory, on the CPU and on GPUs.
struct Transition {
  uint8_t state[2];
  uint8_t next_state[2];
  uint8_t action;
  float reward;
};

}  // namespace adtrain
