#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "collectives/Communicator.h"
#include "evaluation/scoring/ActionScorer.h"
#include "evaluation/scoring/SampleBatches.h"
#include "evaluation/scoring/ScoreTable.h"
#include "evaluation/scoring/ScoredWindows.h"
#include "model/AlgorithmDistillation.h"
#include "placement/PlacedNetwork.h"

namespace adtrain {

/// Shows windows of histories to a model and scores the actions that were taken there.
///
/// Ranks get whole batches, and every forward pass has the same number of rows: what a batch lacks is filled
/// with its last window. On a CPU a batch is computed by one thread, and threads compute several batches, as
/// libraries sum in another order where several threads share a product. So scores are bitwise equal for any
/// number of ranks and threads on equal hardware. A network over several devices is shown the same batches,
/// of which several are on their way through it at once.
class Scoring {
 public:
  /// How many samples of all ranks are done. Called now and then, on every rank.
  using Progress = std::function<void(int64_t done, int64_t of)>;

  /// Borrows all of them. `placed`: `model` over several devices; null for the device where it is.
  Scoring(AlgorithmDistillation& model, const ScoredWindows& windows, const SampleBatches& batches,
          PlacedNetwork* placed = nullptr);

  const ScoreTable::Layout& layout() const { return layout_; }
  /// The losses of all groups, each once, with commas between: see ActionScorer::loss_name.
  std::string loss_names() const;

  /// One batch, in the calling thread. Thread-safe on a CPU, but for a plug-in's network.
  ScoreTable score(int64_t batch) const;
  /// A forward pass of `rows` rows of the first window, for its memory and time; waits for the device.
  void try_batch(int64_t rows) const;

  /// The samples of `batches`, each scored by one rank, by `threads` threads on a CPU. Collective, and ranks
  /// that have nothing to do need not wait for a step of the others: they exchange short messages until all
  /// are done. Rank 0 gets the table, the others an empty one; all get nothing where `stop` returned true on
  /// any of them. Sets libtorch's threads on a CPU to one.
  std::optional<ScoreTable> run(const NumberSpan& batches, Communicator& communicator, int64_t threads,
                                const Progress& progress, const std::function<bool()>& stop) const;

 private:
  /// Rows of one group on their way through the model.
  struct Rows {
    size_t group = 0;
    std::vector<size_t> places;  ///< of its windows in the batch
    Batch batch;                 ///< on the CPU
    at::Tensor predictions;      ///< on the device, where they may not be ready yet
  };
  std::vector<Rows> assembled(const std::vector<int64_t>& windows, int64_t rows) const;
  void predict(std::vector<Rows>& parts) const;
  /// Waits for the predictions.
  ScoreTable scored(const std::vector<int64_t>& windows, const std::vector<Rows>& parts) const;
  /// Sends them through the devices, and does not wait.
  std::vector<PendingPredictions> submitted(const std::vector<Rows>& parts) const;
  std::vector<ScoreTable> on_cpu(const NumberSpan& batches, int64_t threads, std::atomic<int64_t>& done,
                                 const std::atomic<bool>& stopping) const;
  /// While the GPU computes a batch, the next one is assembled.
  std::vector<ScoreTable> on_gpu(const NumberSpan& batches, std::atomic<int64_t>& done,
                                 const std::atomic<bool>& stopping) const;
  /// As many batches are on the way as keep all devices at work.
  std::vector<ScoreTable> on_map(const NumberSpan& batches, std::atomic<int64_t>& done,
                                 const std::atomic<bool>& stopping) const;
  ScoreTable gathered(const std::vector<ScoreTable>& mine, const NumberSpan& batches,
                      Communicator& communicator) const;

  AlgorithmDistillation& model_;
  const ScoredWindows& windows_;
  const SampleBatches& batches_;
  PlacedNetwork* placed_;
  std::vector<ActionScorer> scorers_;  ///< of each group
  ScoreTable::Layout layout_;
};

}  // namespace adtrain
