#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/Random.h"
#include "collection/PpoSettings.h"
#include "collection/own/ActionDistribution.h"
#include "collection/own/ObservationFeatures.h"
#include "collection/own/PolicyAndValue.h"
#include "collection/own/TaskRecorder.h"
#include "environments/worker/WorkerPool.h"

namespace adtrain {

/// How own tasks are learnt.
struct OwnPpoSettings {
  PpoSettings ppo;
  int64_t units;                ///< of each hidden layer
  bool normalize_observations;  ///< by what was seen so far
  int64_t kept_streams;         ///< whose histories are returned: the first ones
};

/// Proximal policy optimisation (Schulman et al. 2017) of one task in users' environments, as
/// Stable-Baselines3 runs it, in any space: Ppo is the same for grids. One policy for all streams; its
/// experience is the task's learning histories. Where an episode is cut off, the value of its last
/// observation is added to the last reward, as if it went on; the histories have the environments' own
/// rewards. A function of its arguments and of what the environments do, not of the number of workers. For
/// one thread, whose libtorch uses one core from then on: the networks are small, and tasks are learnt side
/// by side.
class OwnPpo {
 public:
  /// Makes `streams` environments of the task, which begin with seeds that follow from `seed`. Throws
  /// ConfigError where actions are of a space that cannot be drawn from, and WorkerFault, as learn() does.
  /// The pool, made without env_overlap, must outlive this and have no other batch.
  OwnPpo(WorkerPool& pool, int64_t task, const OwnPpoSettings& settings, uint64_t seed);

  /// The histories of a task, and what its last episodes earn: see TaskRecorder::final_return.
  struct Learnt {
    RecordedTask histories;
    std::optional<double> final_return;
  };
  /// Learns the task completely. Returns nothing where `stop`, called before every rollout, returned true.
  /// Throws NonFiniteError where the networks diverge.
  std::optional<Learnt> learn(const std::function<bool()>& stop = {});

 private:
  void collect_rollout(TaskRecorder& recorder);
  void act(int64_t step);
  void check_finite(int64_t step) const;
  at::Tensor features_of(std::span<const std::byte> observations, bool learn_from_them);
  void value_cut_off_episodes(std::span<float> rewards);
  void estimate();
  void update();

  OwnPpoSettings settings_;
  WorkerHello hello_;
  std::unique_ptr<WorkerBatch> environments_;
  RandomStream random_;
  ObservationFeatures features_;
  RunningNormalisation normalisation_;
  ActionDistribution distribution_;
  PolicyAndValue networks_;

  OwnSamples samples_;
  int64_t rollout_ = 0;
  std::vector<float> actions_;  ///< (streams, action's size)
  std::vector<float> rewards_, values_;
  std::vector<uint8_t> dones_;
  std::vector<int32_t> order_;  ///< of the samples in an epoch
};

}  // namespace adtrain
