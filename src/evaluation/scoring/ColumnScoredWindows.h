#pragma once

#include <map>
#include <memory>

#include "data/ColumnWindows.h"
#include "data/formats/HistorySource.h"
#include "evaluation/scoring/ScoredWindows.h"

namespace adtrain {

/// Windows of tasks of any space, read in place: those of ColumnWindows, whose last step has the action.
class ColumnScoredWindows final : public ScoredWindows {
 public:
  /// `windows` borrow `source`; `tasks` by places of the source, ascending.
  ColumnScoredWindows(std::shared_ptr<const HistorySource> source, std::unique_ptr<ColumnWindows> windows,
                      const std::map<size_t, Task>& tasks, std::string digest);

  int64_t size() const override { return windows_->samples(); }
  Place place(int64_t window) const override;
  Batch assemble(std::span<const int64_t> windows) const override;
  const std::string& digest() const override { return digest_; }
  std::string description() const override { return windows_->description(); }

 private:
  std::shared_ptr<const HistorySource> source_;
  std::unique_ptr<ColumnWindows> windows_;
  std::map<size_t, int64_t> numbers_;  ///< of tasks, by place of the source
  std::string digest_;
};

}  // namespace adtrain
