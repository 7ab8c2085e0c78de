#pragma once

#include <cstdint>
#include <memory>

#include "data/Batch.h"
#include "data/BatchAssembler.h"
#include "data/DataOptions.h"
#include "data/SampleOrder.h"

namespace adtrain {

/// How the global batch is divided over ranks and micro-steps.
struct BatchShare {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t micro_batch = 1;   ///< rows of one micro-batch of one rank
  int64_t accumulation = 1;  ///< micro-batches per rank and optimizer step
  int64_t global_batch() const { return world_size * micro_batch * accumulation; }
  /// Where this rank's rows of micro-step `micro_step` begin in the step's global batch.
  int64_t first_row(int64_t micro_step) const { return (micro_step * world_size + rank) * micro_batch; }
};

/// The micro-batches of one rank, in order. Optimizer step k draws positions k·global … (k+1)·global − 1 of
/// the global order; micro-step m of rank r takes its disjoint slice of them, so batch k is a function of
/// (seed, k, share) alone and every rank count sees the same samples in the same optimizer step.
/// For one thread.
class BatchSource {
 public:
  /// The source of batches.
  struct Feed {
    const BatchAssembler& windows;  ///< borrowed
    SampleOrder order;
    BatchShare share;
    int64_t first_sample = 0;  ///< samples of the global order that were drawn before (0 for a new run)
  };
  /// Batches on `device`: cut there where it is a GPU, its memory holds the histories and the windows are
  /// transitions() or held_columns(), else on the CPU by the options' workers.
  static std::unique_ptr<BatchSource> create(const Feed& feed, const DataOptions& options, at::Device device);
  virtual ~BatchSource() = default;

  virtual Batch next() = 0;
  /// Goes back to the first micro-batch of the step, after a capture in which calls of next() were recorded
  /// and never ran. Only for sources on the device.
  virtual void restart_step() {}
  /// Seconds that next() has kept its caller waiting since the last call of this function.
  virtual double take_seconds_waited() = 0;
  /// Whether next() only enqueues work on the current stream, so that a CUDA graph may capture it: each
  /// replay of a step then draws the next step's batches.
  virtual bool on_device() const = 0;
  /// Of the histories that batches are cut from, in the memory of the device that batches are for.
  virtual int64_t history_bytes() const = 0;
  /// A sentence that is printed at the start of a run.
  virtual std::string description() const = 0;
};

}  // namespace adtrain
