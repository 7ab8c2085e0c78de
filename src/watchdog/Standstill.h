#pragma once

#include <vector>

#include "watchdog/Activity.h"
#include "watchdog/Failure.h"

namespace adtrain {

/// A rank of a run in which no operation ends any more.
struct StandingRank {
  RankIdentity who;
  /// What it waits in, or waited in until it gave up; `waits_in` is empty where that is not known.
  ActivityStatus doing;
};

/// Why a run stands still in which every rank waits for the others, or has given up waiting. Where most of
/// the ranks wait in one operation after one step, the first rank that waits elsewhere is named; else nobody.
/// The error lists what each rank waits in. `ranks` is not empty.
Failure standstill(const std::vector<StandingRank>& ranks);

}  // namespace adtrain
