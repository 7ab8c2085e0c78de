#include "launch/DistributedOptions.h"

#include <fmt/format.h>

namespace adtrain {
namespace {

int64_t bytes_of(double megabytes) {
  return static_cast<int64_t>(megabytes * 1024 * 1024);
}

}  // namespace

void DistributedOptions::declare(Section& section) {
  section
      .key("rendezvous_timeout_seconds", rendezvous_timeout_seconds,
           "How long the ranks wait at the start until all of them have come.")
      .unit("seconds")
      .above(0)
      .at_most(86400);
  section
      .key(
          "collective_timeout_seconds", collective_timeout_seconds,
          "How long a rank waits for the others in one collective operation before it takes a peer for lost.")
      .unit("seconds")
      .above(0)
      .at_most(86400);
  section
      .key("silent_rank_seconds", silent_rank_seconds,
           "After how long a rank of which nothing is heard (stopped, host down) is taken for lost; 0 for "
           "never. A rank that is busy is heard of twice a second.")
      .unit("seconds")
      .at_least(0)
      .at_most(86400);
  section
      .key("leave_within_seconds", leave_within_seconds,
           "How long a rank may go on with its own work, saving perhaps, after another has failed.")
      .unit("seconds")
      .at_least(0)
      .at_most(86400);
  section
      .key("bucket_megabytes", bucket_megabytes,
           "Gradients are summed over ranks in buckets of this size, during the backward pass.")
      .unit("MiB")
      .above(0)
      .at_most(65536);
  section
      .key("first_bucket_megabytes", first_bucket_megabytes,
           "Size of the first such piece: smaller, so that communication starts early.")
      .unit("MiB")
      .above(0)
      .at_most(65536);
  section.key("gradient_wire_type", gradient_wire_type,
              {{"fp32", WireType::kFloat32}, {"bf16", WireType::kBFloat16}},
              "In which type GPUs sum gradients over ranks: bf16 halves the bytes and rounds each sum; CPU "
              "ranks send fp32 whatever is asked for.");
  section.key("shard_optimizer", shard_optimizer,
              "Divides AdamW's moments among the ranks (ZeRO's first stage): of N ranks each has a share of "
              "8 / N bytes a parameter instead of 8, updates the weights that belong to it and receives "
              "the others. Checkpoints are the same, and load on any number of ranks, sharded or not.");
  section.all_free_on_resume();
}

void DistributedOptions::check(Findings& findings) const {
  if (first_bucket_megabytes > bucket_megabytes) {
    findings.add(
        "first_bucket_megabytes",
        fmt::format(
            "{} is more than bucket_megabytes = {}; the first bucket is to be the smaller one: lower it, or "
            "raise bucket_megabytes.",
            first_bucket_megabytes, bucket_megabytes));
  }
}

ReducerOptions DistributedOptions::reducer() const {
  return {.bucket_bytes = bytes_of(bucket_megabytes),
          .first_bucket_bytes = bytes_of(first_bucket_megabytes),
          .wire = gradient_wire_type,
          .shards = shard_optimizer};
}

}  // namespace adtrain
