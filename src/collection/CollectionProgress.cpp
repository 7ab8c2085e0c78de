#include "collection/CollectionProgress.h"

#include "base/Clock.h"

namespace adtrain {

bool collect_missing(
    HistoryFileWriter& writer, const NumberRanges& tasks, const CollectionListener& listener,
    const std::function<void(const std::vector<int64_t>& missing, const CollectionReport& report)>& learn) {
  if (listener.damage) {
    for (const std::string& reason : writer.damages()) listener.damage(reason);
  }
  const std::vector<int64_t> missing = writer.missing();
  const auto total = static_cast<int64_t>(missing.size());
  const Stopwatch watch;
  int64_t learnt = 0;
  double returns = 0;
  const auto report = [&](double earned) {
    ++learnt;
    returns += earned;
    if (!listener.progress) return;
    const auto count = static_cast<double>(learnt);
    listener.progress({.tasks_done = tasks.count() - total + learnt,
                       .tasks = tasks.count(),
                       .mean_final_return = returns / count,
                       .seconds_left = watch.seconds() / count * static_cast<double>(total - learnt)});
  };
  learn(missing, report);
  if (learnt < total) return false;
  writer.finish();
  return true;
}

}  // namespace adtrain
