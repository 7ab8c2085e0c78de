#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/Clock.h"
#include "base/CpuTimes.h"
#include "base/Nvml.h"
#include "collectives/Communicator.h"
#include "parallel/SlowRankCause.h"
#include "parallel/SlowRanks.h"

namespace adtrain {

/// A rank that holds the others back.
struct SlowRank {
  int64_t rank = 0;
  double lost_share = 0;  ///< of their time, that the others wait for it and for ranks that are slow too
  SlowCause cause = SlowCause::kUnknown;
};

/// Exchanges the ranks' times at each report, and names ranks that hold the others back while they run: once
/// when that begins, once when it ends. Causes are looked for only then. For one
/// thread; a single rank is never slow.
class SlowRankMonitor {
 public:
  /// The communicator must outlive the monitor.
  explicit SlowRankMonitor(Communicator& communicator);

  /// The time that the next report is about begins now.
  void begin();

  struct News {
    std::vector<std::string> warnings, notices;  ///< one sentence each, the same on all ranks
  };
  /// Adds this rank's times since begin() or the last report; `total` is measured here. Collective.
  News report(RankTimes mine);

  /// Those known to be slow at present.
  const std::vector<SlowRank>& slow_ranks() const { return slow_ranks_; }

 private:
  void name_slow_ranks(News& news);
  void name_communication(News& news);
  void tell_what_ended(News& news);
  SlowRankEvidence own_evidence() const;
  /// Every rank's figure. Collective.
  std::vector<double> of_all(double mine) const;

  Communicator& communicator_;
  SlowRankWatch watch_;
  Stopwatch since_report_;
  CpuTimes at_suspicion_;
  std::vector<SlowRank> slow_ranks_;
  bool told_communication_ = false;
};

}  // namespace adtrain
