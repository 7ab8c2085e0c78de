#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "environments/worker/FaultReport.h"
#include "environments/worker/PlaceLayout.h"
#include "environments/worker/PlayNotices.h"
#include "environments/worker/SpaceCheck.h"
#include "environments/worker/WorkerHello.h"
#include "environments/worker/WorkerOptions.h"
#include "environments/worker/WorkerProcess.h"

namespace adtrain {

/// Where an environment stands among those that are played: of one task, with a seed of its own.
struct PlaceOrder {
  int64_t task;  ///< its number: in the module's TASKS, or the family's
  int64_t seed;  ///< 0 … 2³¹ − 1
};

/// Environments of the user's that step together, shared among worker processes. Episodes end when the
/// environments say so, at different times in different places, and begin anew on the same step.
///
/// Observations and actions are rows of bytes: numbers of the space's type, in C order. Spans are of the
/// shared segment and valid until the next call. Whatever a worker answers is checked before it is handed
/// out: every number is finite, or one that its space has, and rewards fit float32, in which networks and
/// histories have them. All calls throw WorkerFault, after which only the destructor may be called. For one
/// thread at a time.
class WorkerBatch {
 public:
  /// The environments of one process: `count` from `first` on.
  struct Share {
    WorkerProcess* worker;
    int64_t first, count;
  };
  /// What belongs to all batches of a pool, which outlives them.
  struct Context {
    const WorkerOptions& options;
    const WorkerHello& hello;
    PlayNotices& notices;
  };

  /// `segment` is where the layout's offsets begin; `half` is the batch's number in the protocol.
  WorkerBatch(Context context, std::byte* segment, const PlaceLayout& layout, size_t half,
              std::vector<Share> shares, std::vector<PlaceOrder> places);

  int64_t size() const { return static_cast<int64_t>(places_.size()); }

  /// Makes the environments and resets them: begun here, awaited there.
  void begin_reset();
  void finish_reset();
  /// What is observed now: (n) rows.
  std::span<const std::byte> observations() const { return bytes_of(PlaceArray::kObservation); }

  /// (n) rows, to be written before each step.
  std::span<std::byte> actions() { return bytes_of(PlaceArray::kAction); }
  /// Steps all environments by those actions: begun here, awaited there. Another batch may be asked
  /// meanwhile.
  void begin_step();
  void finish_step();
  /// (n): the last step's rewards.
  std::span<const double> rewards() const;
  /// (n): 1 where the last step ended an episode.
  std::span<const uint8_t> ended() const { return ended_; }
  /// (n): 1 where an episode ended by the environment's own rules, not by a limit of time.
  std::span<const uint8_t> terminated() const { return flags(PlaceArray::kTerminated); }
  /// (n) rows: the last observations of episodes, where the last step ended one.
  std::span<const std::byte> final_observations() const { return bytes_of(PlaceArray::kFinalObservation); }
  /// A place's task, for messages: "2 (high)", or "2" without TASKS.
  std::string task_text(size_t place) const;

 private:
  template <class Number>
  std::span<Number> numbers(PlaceArray array) const;
  std::span<std::byte> bytes_of(PlaceArray array) const;
  std::span<const uint8_t> flags(PlaceArray array) const;
  void clip_actions();
  void mark_longest_episodes();
  void begin(WorkerMessage::Kind kind);
  void await(const std::string& doing);
  void check_observation(PlaceArray array, size_t place);
  void check_reward(size_t place);
  void end_episode(size_t place);
  std::string where(size_t place) const;
  std::string played_by(const Share& share) const;
  [[noreturn]] void refuse(const std::string& what, size_t place, const std::string& found) const;

  Context context_;
  std::byte* segment_;
  PlaceLayout layout_;
  size_t half_;
  std::vector<Share> shares_;
  std::vector<PlaceOrder> places_;
  std::vector<uint32_t> requests_;  ///< of each share, that is awaited
  SpaceCheck check_;
  std::vector<int64_t> episode_;       ///< of each place, from 1
  std::vector<int64_t> episode_step_;  ///< steps of it
  std::vector<uint8_t> ended_;
};

}  // namespace adtrain
