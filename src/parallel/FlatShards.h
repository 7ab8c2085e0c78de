#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "collectives/Communicator.h"
#include "parallel/BucketLayout.h"
#include "parallel/WaitTimer.h"

namespace adtrain {

/// Which elements of flat buffers this rank updates, where the optimizer is sharded (ZeRO's first stage,
/// Rajbhandari et al., 2020): its part of each bucket. What belongs to these elements alone, such as an
/// optimizer's moments, is a *shard*: one tensor of the parts, in the order of the buckets.
///
/// Every operation is collective, and has the deadline of Communicator. For one thread.
class FlatShards {
 public:
  /// `device`: of the buffers. The communicator must outlive the object.
  FlatShards(const BucketLayout& buckets, Communicator& communicator, at::Device device);
  ~FlatShards();
  FlatShards(const FlatShards&) = delete;
  FlatShards& operator=(const FlatShards&) = delete;

  /// Of one bucket.
  struct Place {
    Part bucket;           ///< in a flat buffer
    Part own;              ///< this rank's, in a flat buffer; may be empty
    int64_t in_shard = 0;  ///< where that begins in a shard
  };
  const std::vector<Place>& places() const { return places_; }
  /// Elements of this rank's shard.
  int64_t size() const { return size_; }

  /// Adds these figures of each rank's shard over all ranks, in place: on the CPU or the buffers' device.
  void sum(at::Tensor& figures);

  /// Starts to make bucket number `bucket` of `flat` whole: its owners have the right values.
  void start_all_gather(const at::Tensor& flat, size_t bucket);
  /// Waits for all that have been started.
  void finish_all_gather();
  /// The same for all buckets at once; the device has finished when it returns.
  void all_gather(const at::Tensor& flat);

  /// All ranks' shards in the layout of a flat buffer of `elements`, on rank 0's CPU; an undefined tensor on
  /// the other ranks. Takes 16 MiB of each device.
  at::Tensor gather_on_root(const at::Tensor& shard, int64_t elements);
  /// The opposite: each rank's shard gets its elements of `flat`, which is read on rank 0 alone.
  void scatter_from_root(const at::Tensor& flat, at::Tensor& shard);

  /// Forgets gathers of a step that was not finished.
  void abandon() { gathers_.clear(); }

  /// Seconds that sum() and finish_all_gather() waited in the latest step, and as the mean of steps: as those
  /// of WaitTimer.
  double exposed_seconds() const { return summing_.seconds() + gathering_.seconds(); }
  double take_mean_exposed_seconds() { return summing_.take_mean_seconds() + gathering_.take_mean_seconds(); }

 private:
  /// A stretch of one rank's parts that is short enough to be passed on at once.
  struct Piece {
    int64_t owner;
    Part part;         ///< of a flat buffer
    int64_t in_shard;  ///< of its owner
  };
  /// All elements, in one order on all ranks.
  std::vector<Piece> pieces() const;
  bool is_mine(const Piece& piece) const { return piece.owner == communicator_.rank(); }

  Communicator& communicator_;
  at::Device device_;
  std::vector<Place> places_;
  int64_t size_ = 0;
  std::vector<std::unique_ptr<CollectiveWork>> gathers_;  ///< under way
  WaitTimer summing_, gathering_;
};

}  // namespace adtrain
