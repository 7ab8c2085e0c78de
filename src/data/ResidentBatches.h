#pragma once

#include <cstdint>
#include <string>

#include "data/BatchSource.h"
#include "data/DeviceCursor.h"

namespace adtrain {

/// Batches that a GPU cuts from histories in its own memory: next() only launches kernels.
class ResidentBatches final : public BatchSource {
 public:
  /// Copies the histories to the GPU, which must be the current one. The feed's windows must be
  /// transitions().
  ResidentBatches(const Feed& feed, at::Device device);

  Batch next() override;
  void restart_step() override { cursor_.restart_step(); }
  double take_seconds_waited() override { return 0; }
  bool on_device() const override { return true; }
  int64_t history_bytes() const override { return static_cast<int64_t>(histories_.nbytes()); }
  std::string description() const override { return "on the GPU"; }

 private:
  Feed feed_;
  const TransitionWindows& windows_;
  at::Tensor histories_;     ///< uint8: the transitions, as in a HistorySet
  at::Tensor paying_cells_;  ///< uint8 (tasks, 2): see Borrowing
  DeviceCursor cursor_;
};

}  // namespace adtrain
