#pragma once

#include <cstdint>

#include <driver_types.h>

#include "data/BorrowedEpisodes.h"
#include "data/SampleOrder.h"
#include "data/Transition.h"
#include "data/WindowIndex.h"

namespace adtrain {

/// What cut_windows() reads and writes; all pointers are the GPU's. See Batch for the meaning of the outputs.
struct WindowCut {
  const Transition* histories;  ///< (histories, steps)
  int64_t steps;
  WindowIndex index;
  BorrowedEpisodes borrowed;
  SampleOrder order;
  const int64_t* cursor;  ///< row r holds the sample at position *cursor + first_row + r of the order
  int64_t first_row;
  int64_t rows, length;  ///< of the batch
  int32_t* states;
  int32_t* actions;
  float* rewards;
  int32_t* next_states;
  int32_t* previous;  ///< this and the following: null for plain rows
  int32_t* current;
  int32_t* query_state;
  int32_t* query_action;
};

/// Does BatchAssembler's work on the GPU: the same values in the same places. Returns without waiting; throws
/// EnvironmentError where the kernel cannot be launched.
void cut_windows(const WindowCut& cut, cudaStream_t stream);

}  // namespace adtrain
