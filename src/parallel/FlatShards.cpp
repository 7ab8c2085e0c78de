#include "parallel/FlatShards.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "collectives/RecordedCall.h"
#include "watchdog/Activity.h"

namespace adtrain {

FlatShards::FlatShards(const BucketLayout& buckets, Communicator& communicator, at::Device device)
    : communicator_(communicator), device_(device), summing_(device), gathering_(device) {
  for (const BucketLayout::Bucket& bucket : buckets.buckets()) {
    const Part own = part_of(bucket.part.size, communicator.rank(), communicator.world_size());
    places_.push_back({bucket.part, {bucket.part.begin + own.begin, own.size}, size_});
    size_ += own.size;
  }
}

FlatShards::~FlatShards() = default;

void FlatShards::sum(at::Tensor& figures) {
  summing_.begin();
  communicator_.all_reduce(figures, ReduceOp::kSum);
  summing_.end();
}

void FlatShards::start_all_gather(const at::Tensor& flat, size_t bucket) {
  const RecordedCall recorded("communication: start of weights' all-gather");
  const Part part = places_[bucket].bucket;
  at::Tensor view = flat.narrow(0, part.begin, part.size);
  gathers_.push_back(communicator_.start_all_gather(view));
  communicator_.progress();
}

void FlatShards::finish_all_gather() {
  const Activity::Waiting waiting("the weights' all-gather");
  const RecordedCall recorded("communication: weights' all-gather");
  gathering_.begin();
  for (const auto& gather : gathers_) gather->wait();
  gathers_.clear();
  gathering_.end();
}

void FlatShards::all_gather(const at::Tensor& flat) {
  for (size_t bucket = 0; bucket < places_.size(); ++bucket) start_all_gather(flat, bucket);
  finish_all_gather();
  communicator_.synchronize();
}

std::vector<FlatShards::Piece> FlatShards::pieces() const {
  constexpr int64_t kMostElements = 4 << 20;
  std::vector<Piece> pieces;
  std::vector<int64_t> in_shard(static_cast<size_t>(communicator_.world_size()), 0);
  for (const Place& place : places_) {
    for (int64_t owner = 0; owner < communicator_.world_size(); ++owner) {
      const Part part = part_of(place.bucket.size, owner, communicator_.world_size());
      int64_t& of_owner = in_shard[static_cast<size_t>(owner)];
      for (int64_t done = 0; done < part.size; done += kMostElements) {
        const int64_t size = std::min(kMostElements, part.size - done);
        pieces.push_back({owner, {place.bucket.begin + part.begin + done, size}, of_owner});
        of_owner += size;
      }
    }
  }
  return pieces;
}

at::Tensor FlatShards::gather_on_root(const at::Tensor& shard, int64_t elements) {
  at::Tensor flat;
  if (communicator_.is_root()) flat = at::zeros({elements}, shard.options().device(at::kCPU));
  for (const Piece& piece : pieces()) {
    at::Tensor passed = is_mine(piece) ? shard.narrow(0, piece.in_shard, piece.part.size)
                                       : at::empty({piece.part.size}, shard.options());
    if (piece.owner != 0) communicator_.broadcast(passed, piece.owner);
    communicator_.synchronize();  // with a deadline, unlike the copy's own wait
    if (communicator_.is_root()) flat.narrow(0, piece.part.begin, piece.part.size).copy_(passed);
  }
  return flat;
}

void FlatShards::scatter_from_root(const at::Tensor& flat, at::Tensor& shard) {
  for (const Piece& piece : pieces()) {
    at::Tensor passed = at::empty({piece.part.size}, shard.options());
    if (communicator_.is_root()) passed.copy_(flat.narrow(0, piece.part.begin, piece.part.size));
    if (piece.owner != 0) communicator_.broadcast(passed, 0);
    if (is_mine(piece)) shard.narrow(0, piece.in_shard, piece.part.size).copy_(passed);
  }
}

}  // namespace adtrain
