#pragma once

#include <cstdint>
#include <vector>

namespace adtrain {

/// How one rank has spent some time: seconds.
struct RankTimes {
  double total = 0;
  /// Waited for the others where that delays the step: for what the backward pass did not hide of the
  /// gradients' sums, and on CPU ranks in `agreeing` too.
  double waited = 0;
  double agreeing = 0;  ///< the process waited for the others' messages at the ends of steps
  double data = 0;      ///< waited for batches
  double writing = 0;   ///< wrote checkpoints and figures

  RankTimes& operator+=(const RankTimes& more);
};

/// What the times of all ranks say about their pace.
struct PaceFinding {
  /// The ranks that hold the others back ("stragglers"), in ascending order; at most half of them.
  std::vector<int64_t> slow_ranks;
  double lost_share = 0;  ///< of their time, that the other ranks wait longer than the slow ones, on average
  /// The least share of its time that any rank waits, where that is much on all ranks and none is slow: what
  /// communication itself costs. Else 0.
  double communication_share = 0;

  bool remarkable() const { return !slow_ranks.empty() || communication_share > 0; }
  /// Whether both say the same, but for figures.
  bool agrees_with(const PaceFinding& other) const;
};

/// Data-parallel ranks wait for each other in each step, so that all are equally slow to look at. Who
/// computes slowly is the one that never waits: slow are the ranks that wait clearly less than the others,
/// where the others lose a substantial share of their time. `times`: by rank.
PaceFinding find_slow_ranks(const std::vector<RankTimes>& times);

/// Watches the ranks' times from report to report, and says when a finding begins and ends. It judges
/// windows of several seconds, and tells only what consecutive windows agree on: a single odd step or a busy
/// moment accuses nobody. The first window, in which a run starts, does not count. A function of what it is
/// given, so that all ranks that are given the same come to the same result.
class SlowRankWatch {
 public:
  static constexpr double kWindowSeconds = 5;

  /// `agreeing_windows`: so many in a row make a finding.
  explicit SlowRankWatch(int64_t agreeing_windows) : agreeing_windows_(agreeing_windows) {}

  enum class Turn {
    kNone,
    kSuspicion,  ///< a window differs from what was found so far: the following ones decide
    kBegins,     ///< found() is new
    kEnds,       ///< found() has become unremarkable
  };
  /// `times`: by rank, since the last report.
  Turn add(const std::vector<RankTimes>& times);

  /// What holds at present.
  const PaceFinding& found() const { return found_; }
  /// The times of the latest complete window, by rank.
  const std::vector<RankTimes>& window() const { return window_; }

 private:
  Turn judge();

  int64_t agreeing_windows_;
  bool started_ = false;               ///< the first window is over
  std::vector<RankTimes> collecting_;  ///< of the window that is not complete
  std::vector<RankTimes> window_;
  PaceFinding found_, candidate_;
  int64_t agreeing_ = 0;  ///< consecutive windows that agree on the candidate
};

}  // namespace adtrain
