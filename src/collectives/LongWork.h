#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/Communicator.h"

namespace adtrain {

/// Work that takes ranks unequally long, and possibly hours: the ranks wait for each other by short
/// exchanges, none of which comes near the deadline of a collective operation, and know how far all of them
/// are.
class LongWork {
 public:
  /// How much of all ranks' work is done: called now and then, on every rank, by the thread that calls run().
  using Progress = std::function<void(int64_t done, int64_t of)>;

  LongWork(Communicator& communicator, Progress progress)
      : communicator_(communicator), progress_(std::move(progress)) {}

  /// From now on run() asks `wanted`, where it is one. Once that has returned true on any rank, stopping() is
  /// true on all of them: `work` may then end early.
  void may_stop(std::function<bool()> wanted) { wants_to_stop_ = std::move(wanted); }
  /// The same on all ranks once run() has returned. Also true once run() has to throw, as nobody needs the
  /// rest of the work then.
  const std::atomic<bool>& stopping() const { return stopping_; }

  /// Runs `work` in a thread, which counts up to `pieces` as its own part gets done. Returns when all ranks'
  /// work is done. Collective. Rethrows at once what `work` throws; the other ranks then lose this one.
  /// Where a peer is lost it throws PeerLostError as soon as `work` has ended, which may look at stopping().
  void run(int64_t pieces, const std::function<void(std::atomic<int64_t>& done)>& work);

  /// Computes result(0) … result(count − 1), each on one rank by `threads` threads, and returns all of them
  /// on every rank. Collective. Throws as run() does. Results that are not begun by the time that stopping()
  /// is true remain empty.
  std::vector<std::string> compute(size_t count, size_t threads,
                                   const std::function<std::string(size_t)>& result);

 private:
  Communicator& communicator_;
  Progress progress_;
  std::function<bool()> wants_to_stop_;
  std::atomic<bool> stopping_ = false;
};

}  // namespace adtrain
