#pragma once

#include <cstdint>

#include "config/Section.h"

namespace adtrain {

/// The type in which gradients are summed over ranks.
enum class WireType { kFloat32, kBFloat16 };

/// How gradients are divided into buckets, which are summed over ranks during the backward pass.
struct ReducerOptions {
  int64_t bucket_bytes = 25 << 20;
  int64_t first_bucket_bytes = 1 << 20;  ///< small, so that communication starts early
  WireType wire = WireType::kFloat32;
  /// Whether each rank receives only the part of each sum whose parameters it updates: see FlatShards.
  bool shards = false;
};

/// How the ranks of a run meet and how long they wait for each other.
struct DistributedOptions {
  double rendezvous_timeout_seconds = 300;
  double collective_timeout_seconds = 600;
  double silent_rank_seconds = 20;
  double leave_within_seconds = 20;
  double bucket_megabytes = 25;
  double first_bucket_megabytes = 1;
  WireType gradient_wire_type = WireType::kFloat32;
  bool shard_optimizer = false;

  void declare(Section& section);
  void check(Findings& findings) const;

  ReducerOptions reducer() const;
};

}  // namespace adtrain
