#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/NumberRanges.h"
#include "data/HistoryFileWriter.h"

namespace adtrain {

/// The progress of a collection, reported after every task.
struct CollectionProgress {
  int64_t tasks_done;  ///< in the file, including those of earlier calls
  int64_t tasks;       ///< that the file is to hold
  /// Mean return of the last episodes, over the tasks that this call has learnt, and those of earlier calls
  /// whose returns are known; NaN over none.
  double mean_final_return;
  double seconds_left;  ///< at this call's pace
};

/// A collection's callbacks. Each may be empty.
struct CollectionListener {
  /// Called in the thread that called `run`, with what the user should know and stops nothing: what is
  /// noticed in users' environments, and over which tasks mean_final_return is, where not over all.
  std::function<void(const std::string& sentence)> notice;
  /// Called, before anything is learnt, with each reason for which an earlier call's task is learnt again.
  std::function<void(const std::string& reason)> damage;
  /// Called in the thread that called `run`, after each task; once where there is nothing left to learn.
  std::function<void(const CollectionProgress&)> progress;
  /// Called often, by one thread at a time but not always the same one. Once it returns true, `run` ends soon
  /// and keeps the finished tasks.
  std::function<bool()> stop;
};

/// Called with a finished task's final return, NaN where none of its episodes ended, in the thread that
/// collects.
using CollectionReport = std::function<void(double final_return)>;

/// Has those of `tasks` learnt that the writer lacks, and finishes its file; tells the listener of damages
/// and progress. `learn` learns and writes the tasks that it is given, unless the listener stops it.
/// `before`: the final returns of the tasks that earlier calls have learnt; nothing where they are not known.
/// Returns whether the file is complete.
bool collect_missing(
    HistoryFileWriter& writer, const NumberRanges& tasks, const CollectionListener& listener,
    const std::function<void(const std::vector<int64_t>& missing, const CollectionReport& report)>& learn,
    const std::optional<std::vector<double>>& before = std::nullopt);

}  // namespace adtrain
