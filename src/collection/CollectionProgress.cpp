#include "collection/CollectionProgress.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/Clock.h"

namespace adtrain {
namespace {

/// Of those tasks that have a final return.
class MeanReturn {
 public:
  void add(double earned) {
    if (std::isnan(earned)) return;
    sum_ += earned;
    ++tasks_;
  }
  double value() const {
    return tasks_ > 0 ? sum_ / static_cast<double>(tasks_) : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  double sum_ = 0;
  int64_t tasks_ = 0;
};

}  // namespace

bool collect_missing(
    HistoryFileWriter& writer, const NumberRanges& tasks, const CollectionListener& listener,
    const std::function<void(const std::vector<int64_t>& missing, const CollectionReport& report)>& learn,
    const std::optional<std::vector<double>>& before) {
  if (listener.damage) {
    for (const std::string& reason : writer.damages()) listener.damage(reason);
  }
  const std::vector<int64_t> missing = writer.missing();
  const auto total = static_cast<int64_t>(missing.size());
  const int64_t done = tasks.count() - total;
  if (done > 0 && !before && listener.notice) {
    listener.notice(
        fmt::format("{} of {} tasks are there already: the mean return at the end of learning is that of the "
                    "others alone",
                    done, tasks.count()));
  }
  MeanReturn mean;
  for (const double earned : before.value_or(std::vector<double>())) mean.add(earned);
  const Stopwatch watch;
  int64_t learnt = 0;
  const auto tell = [&](double seconds_left) {
    if (!listener.progress) return;
    listener.progress({.tasks_done = done + learnt,
                       .tasks = tasks.count(),
                       .mean_final_return = mean.value(),
                       .seconds_left = seconds_left});
  };
  const auto report = [&](double earned) {
    ++learnt;
    mean.add(earned);
    tell(watch.seconds() / static_cast<double>(learnt) * static_cast<double>(total - learnt));
  };
  if (total == 0) tell(/*seconds_left=*/0);
  learn(missing, report);
  if (learnt < total) return false;
  writer.finish();
  return true;
}

}  // namespace adtrain
