#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/BatchAssembler.h"
#include "data/BorrowedEpisodes.h"
#include "data/HistorySet.h"
#include "data/WindowIndex.h"

namespace adtrain {

/// What windows borrow episodes by (see BorrowedEpisodes). A value.
struct Borrowing {
  float share = 0;                    ///< of the windows; 0: none
  int64_t streams = 0;                ///< histories of each task, which follow each other
  std::vector<uint8_t> paying_cells;  ///< (tasks, 2): where each task pays first
};

/// Plain and compressed rows of histories in memory. Borrows the histories, which must outlive it. Immutable.
class TransitionWindows final : public BatchAssembler {
 public:
  TransitionWindows(const HistorySet& histories, const WindowShape& shape, Borrowing borrowing = {})
      : histories_(histories), index_(histories.histories(), shape), borrowing_(std::move(borrowing)) {}

  int64_t samples() const override { return index_.size(); }
  Batch assemble(std::span<const int64_t> samples) const override;
  int64_t bytes() const override { return histories_.bytes(); }
  std::string description() const override;
  const TransitionWindows* transitions() const override { return this; }

  const HistorySet& histories() const { return histories_; }
  const WindowIndex& index() const { return index_; }
  const Borrowing& borrowing() const { return borrowing_; }
  /// Of histories and of Borrowing::paying_cells that are there.
  BorrowedEpisodes borrowed(const Transition* histories, const uint8_t* paying_cells) const;

 private:
  Batch assemble_plain(std::span<const int64_t> samples) const;
  Batch assemble_compressed(std::span<const int64_t> samples) const;

  const HistorySet& histories_;
  WindowIndex index_;
  Borrowing borrowing_;
};

}  // namespace adtrain
