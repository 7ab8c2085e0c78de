#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/BatchSource.h"
#include "data/ColumnWindows.h"
#include "data/CutColumns.h"
#include "data/DeviceCursor.h"

namespace adtrain {

/// Batches of rows of any space that a GPU cuts from columns in its own memory, which are as narrow and as
/// packed there as in the file: next() only launches a kernel.
class ResidentColumns final : public BatchSource {
 public:
  /// Copies the columns to the GPU, which must be the current one. The feed's windows must be held_columns().
  ResidentColumns(const Feed& feed, at::Device device);
  Batch next() override;
  void restart_step() override { cursor_.restart_step(); }
  double take_seconds_waited() override { return 0; }
  bool on_device() const override { return true; }
  int64_t history_bytes() const override;
  std::string description() const override { return "on the GPU"; }

 private:
  void copy_tables(at::Device device);
  void copy_columns(at::Device device);
  /// Makes the tensors of a batch of packed rows that others have not.
  PackedCut packed_cut(Batch& batch) const;

  Feed feed_;
  const ColumnWindows& windows_;
  DeviceCursor cursor_;
  ElementType reward_type_ = ElementType::kFloat32;
  at::Tensor states_, actions_, rewards_, begins_;          ///< uint8: columns of all histories
  at::Tensor histories_, runs_;                             ///< uint8: CutHistory, CutRun
  at::Tensor first_window_, first_history_;                 ///< int64: as a WindowFinder has them
  at::Tensor segments_, first_segment_;                     ///< uint8: PackedSegment; int64: of packed rows
  at::Tensor reward_scale_, state_mean_, state_deviation_;  ///< float32: of each task
};

}  // namespace adtrain
