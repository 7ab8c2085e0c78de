#include "evaluation/scoring/ColumnScoredWindows.h"

#include <utility>

namespace adtrain {
namespace {

std::vector<ScoredWindows::Task> in_order(const std::map<size_t, ScoredWindows::Task>& tasks) {
  std::vector<ScoredWindows::Task> list;
  for (const auto& [place, task] : tasks) list.push_back(task);
  return list;
}

}  // namespace

ColumnScoredWindows::ColumnScoredWindows(std::shared_ptr<const HistorySource> source,
                                         std::unique_ptr<ColumnWindows> windows,
                                         const std::map<size_t, Task>& tasks, std::string digest)
    : ScoredWindows(in_order(tasks)),
      source_(std::move(source)),
      windows_(std::move(windows)),
      digest_(std::move(digest)) {
  for (const auto& [place, task] : tasks) numbers_[place] = task.number;
}

ScoredWindows::Place ColumnScoredWindows::place(int64_t window) const {
  const ColumnWindowIndex& index = windows_->index();
  const ColumnWindow found = index.window(window);
  const KeptSteps kept = index.kept(found.task, found.history);
  return {numbers_.at(found.task), static_cast<int64_t>(found.history),
          kept.original(found.start + index.shape().length - 1), windows_->task(found.task).group};
}

Batch ColumnScoredWindows::assemble(std::span<const int64_t> windows) const {
  Batch batch = windows_->assemble(windows);
  return batch.parts.empty() ? batch : batch.parts.front();
}

}  // namespace adtrain
