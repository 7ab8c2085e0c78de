#include "parallel/SlowRanks.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace adtrain {
namespace {

/// Of their time, that the others must lose before anybody is accused.
constexpr double kSubstantialShare = 0.10;
/// So many times as long as the slow ranks the others must wait. Where communication itself is slow, all wait
/// long, and differ by more than kSubstantialShare without a reason.
constexpr double kClearly = 1.5;
/// Of each rank's time, that communication must take before it is worth a word.
constexpr double kMuchCommunication = 0.30;

struct Share {
  double waited = 0;
  int64_t rank = 0;
};

double mean(std::vector<Share>::const_iterator first, std::vector<Share>::const_iterator last) {
  const auto add = [](double sum, const Share& share) { return sum + share.waited; };
  return std::accumulate(first, last, 0.0, add) / static_cast<double>(last - first);
}

}  // namespace

RankTimes& RankTimes::operator+=(const RankTimes& more) {
  total += more.total;
  waited += more.waited;
  agreeing += more.agreeing;
  data += more.data;
  writing += more.writing;
  return *this;
}

bool PaceFinding::agrees_with(const PaceFinding& other) const {
  return slow_ranks == other.slow_ranks && (communication_share > 0) == (other.communication_share > 0);
}

PaceFinding find_slow_ranks(const std::vector<RankTimes>& times) {
  PaceFinding finding;
  const size_t ranks = times.size();
  if (ranks < 2) return finding;
  std::vector<Share> shares;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (times[rank].total <= 0) return finding;
    shares.push_back({times[rank].waited / times[rank].total, static_cast<int64_t>(rank)});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const Share& left, const Share& right) { return left.waited < right.waited; });

  size_t slow = 0;  // ranks before the widest gap
  double widest = 0;
  for (size_t count = 1; count <= ranks / 2; ++count) {
    const double gap = shares[count].waited - shares[count - 1].waited;
    if (gap > widest) {
      widest = gap;
      slow = count;
    }
  }
  if (widest >= kSubstantialShare && shares[slow].waited >= kClearly * shares[slow - 1].waited) {
    const auto others = shares.cbegin() + static_cast<std::ptrdiff_t>(slow);
    for (auto share = shares.cbegin(); share != others; ++share) finding.slow_ranks.push_back(share->rank);
    std::sort(finding.slow_ranks.begin(), finding.slow_ranks.end());
    finding.lost_share = mean(others, shares.cend()) - mean(shares.cbegin(), others);
  } else if (shares.front().waited >= kMuchCommunication) {
    finding.communication_share = shares.front().waited;
  }
  return finding;
}

SlowRankWatch::Turn SlowRankWatch::add(const std::vector<RankTimes>& times) {
  collecting_.resize(times.size());
  double longest = 0;
  for (size_t rank = 0; rank < times.size(); ++rank) {
    collecting_[rank] += times[rank];
    longest = std::max(longest, collecting_[rank].total);
  }
  if (longest < kWindowSeconds) return Turn::kNone;
  window_ = std::exchange(collecting_, {});
  return std::exchange(started_, true) ? judge() : Turn::kNone;
}

SlowRankWatch::Turn SlowRankWatch::judge() {
  PaceFinding finding = find_slow_ranks(window_);
  // Who is slow in all of these windows is slow, whoever else was in one of them.
  std::vector<int64_t> in_both;
  std::set_intersection(candidate_.slow_ranks.begin(), candidate_.slow_ranks.end(),
                        finding.slow_ranks.begin(), finding.slow_ranks.end(), std::back_inserter(in_both));
  if (agreeing_ > 0 && !in_both.empty()) {
    finding.slow_ranks = in_both;
    candidate_.slow_ranks = in_both;
  }
  if (finding.agrees_with(found_)) {
    found_ = finding;
    agreeing_ = 0;
    return Turn::kNone;
  }
  agreeing_ = agreeing_ > 0 && finding.agrees_with(candidate_) ? agreeing_ + 1 : 1;
  candidate_ = finding;
  if (agreeing_ < agreeing_windows_) return agreeing_ == 1 ? Turn::kSuspicion : Turn::kNone;
  found_ = std::exchange(candidate_, {});
  agreeing_ = 0;
  return found_.remarkable() ? Turn::kBegins : Turn::kEnds;
}

}  // namespace adtrain
