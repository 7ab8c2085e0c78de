#pragma once

#include "launch/LaunchContext.h"

namespace adtrain {

/// As torchrun would place it, on this host.
inline LaunchContext rank_of_two(int64_t rank, int64_t port) {
  LaunchContext context;
  context.rank = context.local_rank = rank;
  context.world_size = context.local_world_size = 2;
  context.launcher = Launcher::kTorchrun;
  context.master_address = "127.0.0.1";
  context.master_port = port;
  return context;
}

}  // namespace adtrain
