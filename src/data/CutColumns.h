#pragma once

#include <cstdint>

#include <driver_types.h>

#include "base/ElementType.h"
#include "data/PackedSegment.h"
#include "data/SampleOrder.h"
#include "data/WindowFinder.h"

namespace adtrain {

/// A column of all histories on the GPU, packed, and where its rows go.
struct CutColumn {
  const uint8_t* from;  ///< (steps of all histories, elements)
  void* to;             ///< (rows, length, elements)
  /// (rows, elements): of the step before the first; of packed rows (rows, length, elements), before each.
  /// Null where it is not wanted.
  void* before;
  int64_t elements;
  int32_t from_bytes,
      to_bytes;  ///< of a number: the same, or twice as many for what an unsigned number becomes
};

/// One history that windows are cut from.
struct CutHistory {
  int64_t first_step;       ///< among the steps of all histories
  int64_t first_start;      ///< where its first window begins, among its kept steps
  int64_t first_run, runs;  ///< among the runs of kept steps; no runs: all steps are kept
  int64_t task;             ///< among the tasks' scales
};

/// Consecutive kept steps, as KeptSteps::Run.
struct CutRun {
  int64_t kept, first;
};

/// What packed rows have beside all others: see Batch.
struct PackedCut {
  const PackedSegment* segments;  ///< of all packed rows
  const int64_t* first_segment;   ///< of each of them, and behind the last one
  int64_t global_batch;           ///< samples from *cursor on whose transitions are counted
  int32_t* segment_first;         ///< (rows, length)
  int32_t* filled;                ///< (rows); null where rows are not packed
  int64_t* step_targets;
};

/// What cut_columns() reads and writes; all pointers are the GPU's. See Batch, "Rows of any space", for the
/// meaning of the outputs.
struct ColumnCut {
  WindowFinder finder;
  int64_t stride;  ///< of windows, in kept steps
  const CutHistory* histories;
  const CutRun* runs;
  SampleOrder order;
  const int64_t* cursor;  ///< row r holds the sample at position *cursor + first_row + r of the order
  int64_t first_row;
  int64_t rows, length;  ///< of the batch
  CutColumn states, actions;
  const uint8_t* rewards_from;  ///< (steps of all histories)
  ElementType reward_type;
  const float* reward_scale;  ///< of each task
  float* rewards;
  float* before_reward;
  const uint8_t* begins_from;  ///< (steps of all histories): 1 where the data say that an episode begins
  uint8_t* begins;
  /// (tasks, elements of a state) and (rows, elements of a state); null where states are not normalised
  const float *mean_from, *deviation_from;
  float *mean, *deviation;
  /// `before`, before_reward, mean and deviation are then of each transition.
  PackedCut packed = {};
};

/// Does ColumnWindows' work for one group of spaces on the GPU: the same values in the same places. Returns
/// without waiting; throws EnvironmentError where the kernel cannot be launched.
void cut_columns(const ColumnCut& cut, cudaStream_t stream);

}  // namespace adtrain
