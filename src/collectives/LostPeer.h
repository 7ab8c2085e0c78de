#pragma once

#include <cstdint>
#include <string>

namespace adtrain {

/// One collective operation as an error message describes it.
struct CollectiveCall {
  std::string name;   ///< "an all-reduce"
  int64_t bytes = 0;  ///< of this rank's tensor, 0 where there is none
  std::string backend;
  int64_t rank = 0;
  int64_t world_size = 1;
};

/// Throws PeerLostError: the deadline has passed.
[[noreturn]] void throw_timed_out(const CollectiveCall& call, double timeout_seconds);
/// Throws PeerLostError: the backend says that the operation failed, and why.
[[noreturn]] void throw_lost_peer(const CollectiveCall& call, const std::string& reason);

}  // namespace adtrain
