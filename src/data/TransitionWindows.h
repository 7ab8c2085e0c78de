#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/BatchAssembler.h"
#include "data/HistorySet.h"
#include "data/WindowIndex.h"

namespace adtrain {

/// Plain and compressed rows of histories in memory. Borrows the histories, which must outlive it. Immutable.
class TransitionWindows final : public BatchAssembler {
 public:
  TransitionWindows(const HistorySet& histories, const WindowShape& shape)
      : histories_(histories), index_(histories.histories(), shape) {}

  int64_t samples() const override { return index_.size(); }
  Batch assemble(std::span<const int64_t> samples) const override;
  int64_t bytes() const override { return histories_.bytes(); }
  std::string description() const override;
  const TransitionWindows* transitions() const override { return this; }

  const HistorySet& histories() const { return histories_; }
  const WindowIndex& index() const { return index_; }

 private:
  Batch assemble_plain(std::span<const int64_t> samples) const;
  Batch assemble_compressed(std::span<const int64_t> samples) const;

  const HistorySet& histories_;
  WindowIndex index_;
};

}  // namespace adtrain
