#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "data/Batch.h"
#include "data/BatchAssembler.h"
#include "data/SampleOrder.h"

namespace adtrain {

/// How the global batch is dealt out.
struct BatchShare {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t micro_batch = 1;   ///< rows of one micro-batch of one rank
  int64_t accumulation = 1;  ///< micro-batches a rank and optimizer step
  int64_t global_batch() const { return world_size * micro_batch * accumulation; }
};

/// The micro-batches of one rank, in order. Optimizer step k draws positions k·global … (k+1)·global − 1 of
/// the global order; micro-step m of rank r takes its disjoint slice of them, so batch k is a function of
/// (seed, k, share) alone and every rank count sees the same samples in the same optimizer step.
///
/// `workers` threads assemble up to 2·workers micro-batches ahead of need; with 0 the caller's thread does
/// it. next() is for one thread; what a worker throws is thrown there.
class BatchSource {
 public:
  /// `first_sample`: the cursor, counted in samples of the global order that were drawn before (0 for a new
  /// run).
  BatchSource(const BatchAssembler& assembler, SampleOrder order, BatchShare share, int64_t first_sample,
              int64_t workers);
  ~BatchSource();
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  Batch next();
  /// Seconds that next() has kept its caller waiting since the last call of this function.
  double take_seconds_waited();

 private:
  Batch assemble(int64_t ticket) const;
  void work();

  const BatchAssembler& assembler_;
  SampleOrder order_;
  BatchShare share_;
  int64_t first_sample_;
  int64_t next_ticket_ = 0;  ///< the micro-batch that next() returns
  double seconds_waited_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Batch> ready_;
  std::exception_ptr failure_;
  int64_t next_to_assemble_ = 0;
  int64_t ahead_;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace adtrain
