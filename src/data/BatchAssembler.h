#pragma once

#include <cstdint>
#include <span>

#include "data/Batch.h"
#include "data/HistorySet.h"
#include "data/WindowIndex.h"

namespace adtrain {

/// Turns sample numbers into a Batch on the CPU. Borrows the histories, which must outlive it. Thread-safe:
/// immutable.
class BatchAssembler {
 public:
  BatchAssembler(const HistorySet& histories, const WindowShape& shape)
      : histories_(histories), index_(histories.histories(), shape) {}

  int64_t samples() const { return index_.size(); }
  const HistorySet& histories() const { return histories_; }
  const WindowIndex& index() const { return index_; }
  Batch assemble(std::span<const int64_t> samples) const;

 private:
  Batch assemble_plain(std::span<const int64_t> samples) const;
  Batch assemble_compressed(std::span<const int64_t> samples) const;

  const HistorySet& histories_;
  WindowIndex index_;
};

}  // namespace adtrain
