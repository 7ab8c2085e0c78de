#include "framework/LaunchInfo.h"

namespace adtrain {

LaunchInfo info_of(const LaunchContext& context) {
  return {.rank = context.rank,
          .world_size = context.world_size,
          .local_rank = context.local_rank,
          .local_world_size = context.local_world_size,
          .launcher = launcher_name(context.launcher),
          .run_id = context.run_id,
          .restart_count = context.restart_count,
          .evidence = context.evidence};
}

LaunchInfo LaunchInfo::detect() {
  return info_of(LaunchContext::detect());
}

}  // namespace adtrain
